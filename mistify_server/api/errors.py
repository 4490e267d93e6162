"""Translation of the server's errors into gRPC statuses, which happens only here."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.wire import porting
from mistify.wire.limits import ERROR_METADATA, MAX_METADATA_BYTES
from mistify_server.api.handlers import Stream, Unary, surrounded

# Base64 adds a third to the size of metadata, and gRPC adds its own metadata.
_MOST_ERROR_BYTES = MAX_METADATA_BYTES // 2

#: Maximum length of a message, and of each part of a problem: names in a config may have any length.
_MOST_TEXT = 1024

_log = logging.getLogger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Interceptor that ends failed calls with the error's status and problems."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Wrap the handler of a call."""
        handler = await continuation(details)
        if handler is None:
            return handler
        return surrounded(handler, _unary, _stream)


def _unary(behaviour: Unary) -> Unary:
    async def wrapped(request: Any, context: Any) -> Any:
        try:
            return await behaviour(request, context)
        except Exception as error:
            return await _abort(context, error)

    return wrapped


def _stream(behaviour: Stream) -> Stream:
    async def wrapped(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for message in behaviour(request, context):
                yield message
        except Exception as error:
            await _abort(context, error)

    return wrapped


async def _abort(context: Any, error: Exception) -> None:
    """Abort a call. Unexpected errors are logged, and not revealed to the caller."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, MistifyError):
        _log.error("a call failed", exc_info=error)
        error = MistifyError(ErrorCode.INTERNAL, "an internal error; see the server's log for details")
    status = grpc.StatusCode[error.code.grpc_status]
    await context.abort(status, error.message[:_MOST_TEXT], ((ERROR_METADATA, _attached(error)),))


def _attached(error: MistifyError) -> bytes:
    """Encode an error with as many of its problems as fit; long texts are truncated."""
    info = porting.error_to_proto(
        MistifyError(error.code, error.message[:_MOST_TEXT], map(_cut, error.problems))
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
        return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."

    return Problem(cut(problem.place), cut(problem.value), cut(problem.expected), cut(problem.fix))
