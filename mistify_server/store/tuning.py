"""Interface of the tuning store: groups, members and publications."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mistify.peers.membership import Publication


@dataclass(frozen=True)
class Group:
    """Devices that tune together.

    Attributes:
        name: The name with which devices join.
        job_id: Id of the job that made the packages.
        batch: Index of the job's collective batch; its packages share inputs and outputs.
        correlation: Name of the correlation measure for comparing devices.
        settings: Settings of the correlation measure.
    """

    name: str
    job_id: str
    batch: int
    correlation: str
    settings: Mapping[str, object]


#: Maximum number of members of a group. Whoever has the token of a device can join any number of times.
MOST_MEMBERS: Final = 100_000


class Member(NamedTuple):
    """A member of a group, by its public name."""

    group: str
    name: str


class TuningStore(ABC):
    """Store of groups, their members' leases, and each member's latest publication.

    A group belongs to the tenant of its job. A store contains the groups of one tenant, or all groups; the
    server itself uses the latter, and with it the methods that concern all members and weights.

    As with `JobStore`, every method is a crash-safe transaction, takes milliseconds, and raises
    `MistifyError` UNAVAILABLE if the disk is full, read-only or broken.
    """

    @abstractmethod
    def store_id(self) -> str:
        """Return the random id of this store, which is created by the first call."""

    @abstractmethod
    def add_group(self, group: Group) -> None:
        """Add a group.

        Raises:
            MistifyError: CONFLICT, the name is taken; NOT_FOUND, there is no such job or batch.
        """

    @abstractmethod
    def group(self, name: str) -> Group:
        """Return the group with a name.

        Raises:
            MistifyError: NOT_FOUND, there is no such group.
        """

    @abstractmethod
    def groups(self) -> list[Group]:
        """Return all groups, by name."""

    @abstractmethod
    def remove_group(self, name: str) -> None:
        """Remove a group, its members and their publications.

        Raises:
            MistifyError: NOT_FOUND, there is no such group.
        """

    @abstractmethod
    def lease(self, member: Member, expires_unix_ms: int) -> None:
        """Add a member, or renew its lease.

        Raises:
            MistifyError: NOT_FOUND, there is no such group; NO_ROOM, it has too many members.
        """

    @abstractmethod
    def expiry(self, member: Member) -> int | None:
        """Return the end of a member's lease in Unix milliseconds; None if it is not a member."""

    @abstractmethod
    def expired(self, now_unix_ms: int, limit: int) -> list[Member]:
        """Return up to `limit` members with expired leases."""

    @abstractmethod
    def publish(self, member: Member, publication: Publication) -> str | None:
        """Store a member's publication; return the SHA-256 of the weights that it replaces, if any.

        Raises:
            MistifyError: NOT_FOUND, the device is not a member; CONFLICT, its latest version is not lower.
        """

    @abstractmethod
    def published(self, member: Member) -> Publication | None:
        """Return a member's latest publication; None if it has none."""

    @abstractmethod
    def publications(self, group: str) -> dict[str, Publication]:
        """Return the latest publication of each member of a group, by member.

        Those that only a newer version can read are left out.
        """

    @abstractmethod
    def leave(self, member: Member, expired_by: int | None = None) -> str | None:
        """Remove a member, if it is one; return the SHA-256 of the weights that it has published, if any.

        Args:
            expired_by: A time in Unix milliseconds; a member whose lease ends later stays. None removes any.
        """

    @abstractmethod
    def weights(self) -> set[str]:
        """Return the SHA-256 digests of all published weights."""

    @abstractmethod
    def has_weights(self, sha256: str) -> bool:
        """Check whether any member has published these weights."""
