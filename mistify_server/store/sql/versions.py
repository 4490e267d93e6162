"""Values of jobs that servers of other versions have written, for example during an upgrade.

A server leaves such a job to those of the newer version.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import JobState
from mistify_server.store.sql.schema import JobRow


@contextmanager
def of_this_version(job_id: str) -> Iterator[None]:
    """Translate the errors of values of a job that servers of other versions have written.

    Raises:
        MistifyError: STORE_VERSION, this version does not know a value.
    """
    try:
        yield
    except ValueError as error:  # among them those of enumerations
        raise MistifyError(
            ErrorCode.STORE_VERSION,
            f"the job {job_id} was written by another version of Mistify, which this server cannot read "
            f"({_first_of(error)}); upgrade this server",
        ) from error


def state_of(job: JobRow) -> JobState:
    """Return the state of a job.

    Raises:
        MistifyError: STORE_VERSION, this version does not know it.
    """
    with of_this_version(job.id):
        return JobState(job.state)


def _first_of(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{error.title}.{place}: {first['msg']}"
