"""Translation of the server's errors into gRPC statuses, which happens only here."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from mistify.errors import ErrorCode, MistifyError
from mistify.wire.errors import MOST_TEXT, error_metadata
from mistify_server.api.handlers import Stream, Unary, surrounded

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
    await context.abort(status, error.message[:MOST_TEXT], error_metadata(error))
