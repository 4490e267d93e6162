"""Prometheus metrics, including those of HTTP requests."""

import asyncio
import time
from typing import Final

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistify.errors import ErrorCode
from mistify_server.identity.callers import current_caller
from mistify_server.telemetry.metrics import Metrics
from mistify_server.web.problems import responses

_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

#: Label value that replaces arbitrary values from callers.
_OTHER: Final = "other"


class TimingMiddleware:
    """The outermost middleware, which counts and times requests, including refused ones."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else _OTHER
            route = getattr(scope.get("route"), "path", _OTHER)
            self._metrics.requests.labels(method, route, status).observe(time.perf_counter() - start)


def metrics_routes(registry: CollectorRegistry) -> APIRouter:
    """Return the route for the metrics in a registry."""
    router = APIRouter(tags=["health"])

    @router.get(
        "/metrics",
        response_class=Response,
        responses={**responses(ErrorCode.UNAVAILABLE), 200: {"content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """Report the state and the work of the whole server to Prometheus, for callers of `default`."""
        current_caller().check_operator("reads metrics")
        content = await asyncio.to_thread(generate_latest, registry)
        return Response(content, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
