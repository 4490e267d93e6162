"""Leases: which server may change a job as its runner."""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError

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


class Leases(ABC):
    """The leases of one server.

    Attributes:
        server: The id of the server, a new one each time that a store is opened.
    """

    server: str

    @abstractmethod
    def take(self, job_id: str) -> JobLease | None:
        """Return a lease of an unfinished job, which ends the job's earlier leases; None if it has ended.

        Raises:
            MistifyError: NOT_FOUND, there is no such job; UNAVAILABLE, the store cannot be used.
        """
