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
        member: its public name.
        lease_seconds: after so long without a call it is forgotten.
        correlation: the name of the group's correlation measure.
        settings: of that measure; they say which hints are wanted.
        version: of the model it has published last, 0 where there is none.
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
        package: whose weights were tuned.
        version: higher than that of anything the device has published before.
        loss: cross entropy on the device's data, or on what it trains on in their place.
        accuracy: share of these that are classified correctly.
        hints: the device's summary of its data.
        size: of the weights in bytes, as `mistify.package.weights.write_weights` makes them.
        sha256: of that file, in hex.
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
