"""Decoding of requests, so that malformed ones are errors of the caller."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc

from mistify.wire.messages import decoded
from mistify_server.api.handlers import Stream, Unary, surrounded


class RequestInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Interceptor that decodes requests, because gRPC ends calls with malformed ones by UNKNOWN.

    It must follow the one that converts errors.
    """

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Wrap the handler of a call, unless it needs no requests."""
        handler = await continuation(details)
        if handler is None or handler.request_deserializer is None:
            return handler
        decode = partial(decoded, handler.request_deserializer)
        read = partial(_all, decode) if handler.request_streaming else decode
        return surrounded(handler, partial(_unary, read), partial(_stream, read), decodes=False)


def _unary(read: Callable[[Any], Any], behaviour: Unary) -> Unary:
    async def wrapped(request: Any, context: Any) -> Any:
        return await behaviour(read(request), context)

    return wrapped


def _stream(read: Callable[[Any], Any], behaviour: Stream) -> Stream:
    async def wrapped(request: Any, context: Any) -> AsyncIterator[Any]:
        async for message in behaviour(read(request), context):
            yield message

    return wrapped


async def _all(decode: Callable[[bytes], Any], requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for request in requests:
        yield decode(request)
