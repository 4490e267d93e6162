"""Traces of the calls that start work."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import grpc

from mistify.errors import MistifyError
from mistify_server.api.handlers import Unary, surrounded
from mistify_server.tracing.traces import Span, Traces

#: Calls that ask for state, and those of devices, are so many that their traces would hide the others.
_TRACED: Final = frozenset(f"/mistify.v1.Porting/{call}" for call in ("SubmitBatch", "Plan", "AddGoals"))

_HEADER: Final = "traceparent"


class TracingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Interceptor that traces calls that start work; it must follow the one that checks access."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Wrap the handler of a call."""
        handler = await continuation(details)
        if handler is None or details.method not in _TRACED:
            return handler
        caller = str(dict(details.invocation_metadata or ()).get(_HEADER, ""))
        traced = partial(self._traced, details.method.lstrip("/"), caller)
        return surrounded(handler, partial(_unary, traced), lambda stream: stream)

    @contextmanager
    def _traced(self, method: str, caller: str) -> Iterator[Span]:
        service, call = method.split("/")
        about = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": call}
        with self._traces.call(method, caller, about) as span:
            status = grpc.StatusCode.INTERNAL
            try:
                yield span
                status = grpc.StatusCode.OK
            except MistifyError as error:
                status = grpc.StatusCode[error.code.grpc_status]
                raise
            finally:
                span.describe({"rpc.grpc.status_code": status.value[0]})


def _unary(traced: Any, behaviour: Unary) -> Unary:
    async def wrapped(request: Any, context: Any) -> Any:
        with traced() as span:
            response = await behaviour(request, context)
            if job_id := getattr(response, "id", ""):
                span.describe({"mistify.job.id": job_id})
        return response

    return wrapped
