"""Errors as metadata of a failed call, so that the caller gets the error itself with all its problems."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError

from mistify.errors import MistifyError, Problem
from mistify.v1 import porting_pb2 as pb
from mistify.wire import porting
from mistify.wire.limits import ERROR_METADATA, MAX_METADATA_BYTES

# Base64 adds a third to the size of metadata, and gRPC adds its own metadata.
_MOST_ERROR_BYTES = MAX_METADATA_BYTES // 2

#: Maximum length of a message, and of each part of a problem: names in a config may have any length.
MOST_TEXT = 1024


def error_metadata(error: MistifyError) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata of a call that failed with an error."""
    return ((ERROR_METADATA, _attached(error)),)


def attached_error(metadata: Iterable[Any] | None) -> MistifyError | None:
    """Return the error in the trailing metadata of a failed call; None if there is none that can be read."""
    for entry in metadata or ():
        if entry.key == ERROR_METADATA:
            with suppress(DecodeError):
                return porting.error_from_proto(pb.ErrorInfo.FromString(entry.value))
    return None


def _attached(error: MistifyError) -> bytes:
    """Encode an error with as many of its problems as fit; long texts are truncated."""
    info = porting.error_to_proto(
        MistifyError(error.code, error.message[:MOST_TEXT], map(_cut, error.problems))
    )
    left_out = 0
    while info.problems and info.ByteSize() > _MOST_ERROR_BYTES:
        half = len(info.problems) // 2
        left_out += len(info.problems) - half
        del info.problems[half:]
    if left_out:
        info.message += f" (and {left_out:,} more problems)"
    return info.SerializeToString()


def _cut(problem: Problem) -> Problem:
    def cut(text: str) -> str:
        return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."

    return Problem(cut(problem.place), cut(problem.value), cut(problem.expected), cut(problem.fix))
