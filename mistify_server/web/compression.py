"""Compression of pages."""

from typing import Final

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

#: Paths of the API, whose packages hardly shrink and whose events must not wait, and of static files, which
#: are compressed once.
_AS_THEY_ARE: Final = ("/v1/", "/static/")


class PageCompressionMiddleware:
    """Middleware that compresses the responses to all paths except those of the API and of static files."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, compresslevel=5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        as_it_is = scope["type"] != "http" or scope["path"].startswith(_AS_THEY_ARE)
        await (self._app if as_it_is else self._compressed)(scope, receive, send)
