"""Tuning with peers as seen by server and client: memberships, published models, peers (paper 5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from mistify.peers.hints import Hints

#: Length of a member's secret, in bytes.
SECRET_BYTES = 32

#: Maximum number of peers in one call.
MOST_PEERS = 64


@dataclass(frozen=True)
class MemberKey:
    """A member of a group, with its secret, which only the member and the server know: 32 random bytes."""

    group: str
    secret: bytes

    @property
    def member(self) -> str:
        """The public name of the member: 16 bytes in hex, which do not reveal the secret."""
        return sha256(self.secret).hexdigest()[:32]


@dataclass(frozen=True)
class Membership:
    """The terms of a membership, received by a member when it joins.

    Attributes:
        member: The member's public name.
        lease_seconds: Seconds without a call after which the member is removed.
        correlation: Name of the group's correlation measure.
        settings: Settings of the correlation measure; they determine the required hints.
        version: Version of the member's most recent publication; 0 if there is none.
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
    """A tuned model as described by its device.

    Attributes:
        package: The package whose weights were tuned.
        version: Higher than all earlier versions of this device.
        loss: Cross entropy on the device's data, or on the data it trains on instead.
        accuracy: Share of these data that is classified correctly.
        hints: The device's summary of its data.
        size: Size of the weights in bytes, as written by `mistify.package.weights.write_weights`.
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
    """A published model as seen by other members; `distance` is by the group's correlation measure."""

    member: str
    package: PackageReference
    version: int
    loss: float
    accuracy: float
    distance: float
    size: int
    sha256: str
