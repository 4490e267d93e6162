"""Tuning with peers as server and client see it: memberships, published models, peers (paper 5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from mistify.peers.hints import Hints

#: Bytes of a member's secret.
SECRET_BYTES = 32

#: The most peers of one call.
MOST_PEERS = 64


@dataclass(frozen=True)
class MemberKey:
    """A member of a group, as only itself and the server know it: 32 random bytes."""

    group: str
    secret: bytes

    @property
    def member(self) -> str:
        """The public name of the member: 16 bytes in hex, which do not reveal the secret."""
        return sha256(self.secret).hexdigest()[:32]


@dataclass(frozen=True)
class Membership:
    """The terms that a member receives when it joins.

    Attributes:
        member: The member's public name.
        lease_seconds: A member is forgotten after so long without a call.
        correlation: Name of the group's correlation measure.
        settings: Settings of the correlation measure; they say which hints are wanted.
        version: Version of the model it has published last; 0 where there is none.
    """

    member: str
    lease_seconds: float
    correlation: str
    settings: Mapping[str, object]
    version: int


@dataclass(frozen=True)
class PackageReference:
    """A package of the server: a goal of a job, and the SHA-256 (hex) of its `serve.tflite`."""

    job_id: str
    goal_id: str
    sha256: str


@dataclass(frozen=True)
class Publication:
    """A tuned model as its device describes it.

    Attributes:
        package: The package whose weights were tuned.
        version: Higher than any version that the device has published before.
        loss: Cross entropy on the device's data, or on the data it trains on in their place.
        accuracy: Share of these data that is classified correctly.
        hints: The device's summary of its data.
        size: Bytes of the weights, as `mistify.package.weights.write_weights` writes them.
        sha256: SHA-256 of that file, in hex.
    """

    package: PackageReference
    version: int
    loss: float
    accuracy: float
    hints: Hints
    size: int
    sha256: str


@dataclass(frozen=True)
class Peer:
    """A published model as other members see it; `distance` is that of the group's correlation measure."""

    member: str
    package: PackageReference
    version: int
    loss: float
    accuracy: float
    distance: float
    size: int
    sha256: str
