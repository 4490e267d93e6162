"""Values that servers of other versions have written, for example during an upgrade.

A server leaves such a job to those of the newer version.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import ValidationError

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import JobState
from mistify_server.store.sql.schema import JobRow

_Row = TypeVar("_Row")
_Read = TypeVar("_Read")

_log = logging.getLogger(__name__)


@contextmanager
def of_this_version(name: str, kind: str = "job") -> Iterator[None]:
    """Translate the errors of values that servers of other versions have written.

    Args:
        name: Name of the job or of whatever else has the values.
        kind: Its kind, such as `device`.

    Raises:
        MistifyError: STORE_VERSION, this version does not know a value.
    """
    try:
        yield
    except ValueError as error:  # among them those of enumerations
        raise MistifyError(
            ErrorCode.STORE_VERSION,
            f"the {kind} {name} was written by another version of Mistify, which this server cannot read "
            f"({_first_of(error)}); upgrade this server",
        ) from error


def readable(rows: Iterable[_Row], read: Callable[[_Row], _Read]) -> Iterator[_Read]:
    """Yield what can be read of some rows. The log names the others, which are left out.

    Args:
        read: Returns the content of a row, or raises the error of `of_this_version`.
    """
    for row in rows:
        try:
            yield read(row)
        except MistifyError as error:
            if error.code is not ErrorCode.STORE_VERSION:
                raise
            _log.warning("%s", error)


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
