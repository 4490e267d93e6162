"""Answers to requests that the end of the server cuts off."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistify.errors import ErrorCode, MistifyError
from mistify_server.web.problems import problem_response


class CutOffMiddleware:
    """Answers requests that are cancelled when the server stops: callers may repeat them at the next server.

    Otherwise they would count as failures of the server, and be logged with a traceback.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        has_begun = False

        async def send_noting_begin(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting_begin)
        except asyncio.CancelledError:
            if has_begun:
                raise
            error = MistifyError(ErrorCode.UNAVAILABLE, "the server is stopping; repeat the request")
            await problem_response(error)(scope, receive, send)
