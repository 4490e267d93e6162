"""Leases: which server may change a job as its runner."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import JobPriority

#: The fence of a new job that a server has from the start.
FIRST_FENCE: Final = 1


class JobLease(NamedTuple):
    """The right of a server to record the results of a job, until a server takes the job again.

    Attributes:
        fence: Rises with every lease of the job and when it is ended, so that late results are recognized.
    """

    job_id: str
    fence: int


class LeaseLostError(MistifyError):
    """A job was taken by another server, or ended, since the lease was given; its results are refused."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            ErrorCode.CONFLICT,
            f"the job {job_id} was ended or taken over by another server; drop its results",
        )


class UnknownGoalsError(MistifyError):
    """A job cannot end: it has goals that its runner does not know."""

    def __init__(self, job_id: str) -> None:
        super().__init__(ErrorCode.CONFLICT, f"goals were added to the job {job_id} by another server")


class JobSituation(NamedTuple):
    """A job as the servers that share a database see it.

    Attributes:
        fence: The number of its last lease.
        free: Whether it is unfinished and no other server has it.
        begun: Whether a step of it has begun.
        paused: Whether it is paused.
        goals: The number of its goals.
        error: Why this server cannot read it, which is then neither free nor paused: only a newer version
            knows its state or its priority.
    """

    job_id: str
    fence: int
    free: bool
    paused: bool
    priority: JobPriority
    goals: int
    begun: bool = True
    error: MistifyError | None = None


class Leases(ABC):
    """The leases of one server.

    A server that shares its database with others has its jobs for as long as it calls `renew` in time, by the
    clock of the database alone. A job whose server does not is free for the others. It is taken only by a
    server that has itself been in time for the length of a lease, so that an outage of the database, in which
    nobody could renew, costs nobody their jobs.

    Attributes:
        server: The id of the server, a new one each time that a store is opened.
    """

    server: str

    @abstractmethod
    def start_alone(self) -> None:
        """Free the jobs of all other servers, none of which is running."""

    @abstractmethod
    def record_main(self, address: str) -> None:
        """Record the address of this server as that of the main one."""

    @abstractmethod
    def main_address(self) -> str | None:
        """Return the address of the last main server; None if an earlier version recorded none."""

    @abstractmethod
    def announced(self, on_change: Callable[[str], None]) -> AbstractContextManager[None]:
        """Call a function within the block with the id of each job that other processes have changed.

        The id is empty if any job may have changed, for example after a lost connection. The function is
        called by another thread.
        """

    @abstractmethod
    def renew(self, seconds: float, busy_seconds: float = 0.0) -> bool:
        """Have the server's jobs for some more seconds, unless another server has taken them.

        Returns whether there are other servers.

        Args:
            busy_seconds: How long the server's oldest task has been running.
        """

    @abstractmethod
    def leave(self) -> None:
        """Free the jobs of this server, which does not run them any more."""

    @abstractmethod
    def give_back(self, job_id: str) -> None:
        """Free a job of this server, which does not run it; no effect on jobs of other servers."""

    @abstractmethod
    def situations(self, own: Collection[str], *, unfinished: bool = True) -> list[JobSituation]:
        """Return the situations of jobs, the oldest first; goals are only counted for the own ones.

        Args:
            own: Ids of jobs.
            unfinished: Whether to return those of all unfinished jobs as well.
        """

    @abstractmethod
    def oldest_step(self) -> float:
        """Return for how many seconds other servers may have been working on results that are not recorded.

        Servers that were killed count as well, for two days.
        """

    @abstractmethod
    def take(self, job_id: str) -> JobLease | None:
        """Return a lease of an unfinished job, which ends the job's earlier leases.

        None if the job has ended or another server has it.

        Raises:
            MistifyError: NOT_FOUND, there is no such job; UNAVAILABLE, the store cannot be used.
        """

    @abstractmethod
    def take_unbegun(self, job_id: str) -> bool:
        """Have a job of another server, which hears of it, unless a step of it has begun.

        Returns whether the job is now this server's.

        Raises:
            MistifyError: NOT_FOUND, there is no such job; UNAVAILABLE, the store cannot be used.
        """
