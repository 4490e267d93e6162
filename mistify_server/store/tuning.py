"""What a store keeps of tuning with peers, and how it is asked."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mistify.peers.membership import Publication


@dataclass(frozen=True)
class Group:
    """Devices that tune together.

    Attributes:
        name: which they join by.
        job_id: of the job whose packages they tune.
        batch: the collective batch of that job; its packages take and give the same.
        correlation: the name of the measure by which they are compared.
        settings: of that measure.
    """

    name: str
    job_id: str
    batch: int
    correlation: str
    settings: Mapping[str, object]


class Member(NamedTuple):
    """A member of a group, by its public name."""

    group: str
    name: str


class TuningStore(ABC):
    """Keeps groups, their members' leases, and what each has published last.

    As with `JobStore`, every method is one transaction that survives a crash, takes milliseconds, and raises
    `MistifyError` UNAVAILABLE where the disk is full, read-only or broken.
    """

    @abstractmethod
    def store_id(self) -> str:
        """What tells this store from all others: drawn when it is first asked for, then kept."""

    @abstractmethod
    def add_group(self, group: Group) -> None:
        """Keep a group.

        Raises:
            MistifyError: CONFLICT, the name is taken; NOT_FOUND, there is no such job or batch.
        """

    @abstractmethod
    def group(self, name: str) -> Group:
        """The group of a name.

        Raises:
            MistifyError: NOT_FOUND, there is none.
        """

    @abstractmethod
    def groups(self) -> list[Group]:
        """All groups, by name."""

    @abstractmethod
    def remove_group(self, name: str) -> None:
        """Forget a group, its members and what they have published.

        Raises:
            MistifyError: NOT_FOUND, there is no such group.
        """

    @abstractmethod
    def lease(self, member: Member, expires_unix_ms: int) -> None:
        """Keep a member, or renew its lease.

        Raises:
            MistifyError: NOT_FOUND, there is no such group.
        """

    @abstractmethod
    def expiry(self, member: Member) -> int | None:
        """When a member's lease ends, in Unix milliseconds; None where it is no member."""

    @abstractmethod
    def expired(self, now_unix_ms: int, limit: int) -> list[Member]:
        """Up to `limit` members whose leases have ended."""

    @abstractmethod
    def publish(self, member: Member, publication: Publication) -> None:
        """Keep what a member publishes in place of what it has published before.

        Raises:
            MistifyError: NOT_FOUND, it is no member; CONFLICT, its last version is not lower.
        """

    @abstractmethod
    def published(self, member: Member) -> Publication | None:
        """What a member has published last, None where it has nothing."""

    @abstractmethod
    def publications(self, group: str) -> dict[str, Publication]:
        """What the members of a group have published last, by member."""

    @abstractmethod
    def leave(self, member: Member) -> None:
        """Forget a member and what it has published; nothing happens where it is no member."""

    @abstractmethod
    def weights(self) -> set[str]:
        """The SHA-256 of all published weights."""

    @abstractmethod
    def has_weights(self, sha256: str) -> bool:
        """Whether anybody has published these weights."""
