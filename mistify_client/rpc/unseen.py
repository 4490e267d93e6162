"""Jobs that a server has accepted, but that the caller's token may not see."""

from collections.abc import Iterator
from contextlib import contextmanager

from mistify.errors import ErrorCode, MistifyError


class UnseenJobError(MistifyError):
    """The server accepted a job, but the caller's token does not give access to it.

    Args:
        error: The server's refusal, with the missing scope.
    """

    def __init__(self, job_id: str, error: MistifyError) -> None:
        message = f"job {job_id} was accepted, and runs, but its progress cannot be read: {error.message}"
        super().__init__(error.code, message)
        self.job_id = job_id


@contextmanager
def accepted(job_id: str) -> Iterator[None]:
    """Say in the block that a job was accepted, if the caller may not see it.

    Raises:
        UnseenJobError: The token lacks a scope for a call.
    """
    try:
        yield
    except MistifyError as error:
        if error.code is ErrorCode.PERMISSION_DENIED and not isinstance(error, UnseenJobError):
            raise UnseenJobError(job_id, error) from error
        raise
