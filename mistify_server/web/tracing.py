"""Traces of the HTTP requests that start work."""

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistify_server.tracing.traces import Traces

#: Paths of the `POST` requests that start work.
_TRACED: Final = re.compile(r"/v1/(jobs|plans|jobs/[^/]+/goals)")

_HEADER: Final = "traceparent"

#: Statuses from this one are failures of the server.
_SERVER_FAILURES: Final = 500


class TracingMiddleware:
    """Middleware that traces requests that start work; it must be within the one that checks access."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["method"] != "POST" or not _TRACED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        about = {"http.request.method": "POST", "url.path": scope["path"], "url.scheme": scope["scheme"]}
        with self._traces.call("POST", Headers(scope=scope).get(_HEADER, ""), about) as span:

            async def send_noting_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.describe({"http.response.status_code": status})
                    if status >= _SERVER_FAILURES:
                        span.fail(str(status), f"HTTP {status}")
                await send(message)

            await self._app(scope, receive, send_noting_status)
            if route := getattr(scope.get("route"), "path", ""):
                span.rename(f"POST {route}")
                span.describe({"http.route": route})
