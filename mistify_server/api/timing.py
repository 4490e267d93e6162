"""Durations of calls, by method and status."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc

from mistify_server.api.handlers import Stream, Unary, surrounded
from mistify_server.telemetry.metrics import Metrics


class TimingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Interceptor that counts and times calls of existing methods; it must be the first interceptor."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Wrap the handler of a call."""
        handler = await continuation(details)
        if handler is None:
            return handler
        timed = partial(self._timed, details.method)
        return surrounded(handler, partial(_unary, timed), partial(_stream, timed))

    @contextmanager
    def _timed(self, method: str, context: Any) -> Iterator[None]:
        start, cancelled = time.perf_counter(), False
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            cancelled = True
            raise
        finally:
            code = grpc.StatusCode.CANCELLED if cancelled else context.code() or grpc.StatusCode.OK
            self._metrics.calls.labels(method, code.name).observe(time.perf_counter() - start)


def _unary(timed: Any, behaviour: Unary) -> Unary:
    async def wrapped(request: Any, context: Any) -> Any:
        with timed(context):
            return await behaviour(request, context)

    return wrapped


def _stream(timed: Any, behaviour: Stream) -> Stream:
    async def wrapped(request: Any, context: Any) -> AsyncIterator[Any]:
        with timed(context):
            async for message in behaviour(request, context):
                yield message

    return wrapped
