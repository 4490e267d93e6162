"""Access control: checks of host, origin, and token or session before the rest of a request is read."""

import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistify.errors import ErrorCode, MistifyError
from mistify_server.web.problems import problem_response, wants_page

#: Name of the session cookie, and its lifetime in seconds.
COOKIE: Final = "mistify_session"
SESSION_SECONDS: Final = 12 * 3600

#: Path of the login page.
LOGIN: Final = "/login"

#: Paths without authentication; static files are needed by the login page.
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/v1/session", LOGIN})
_OPEN_PREFIX: Final = "/static/"

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

#: Default headers of every response: pages load nothing from other sites, cannot be framed, and send no
#: referrer.
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "style-src 'self' 'unsafe-inline'; "  # Plotly sets inline styles
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Sessions:
    """Sessions of browsers that have sent the token.

    Args:
        token: The server's token; None if it needs none.
        now: Returns seconds from an arbitrary start.
    """

    def __init__(self, token: str | None, now: Callable[[], float] = time.monotonic) -> None:
        self._token = token
        self._now = now
        self._ends: dict[str, float] = {}

    def open(self, token: str) -> str:
        """Return the secret of a new session.

        Raises:
            MistifyError: UNAUTHENTICATED, the token is wrong.
        """
        if self._token is not None and not _equal(token, self._token):
            raise MistifyError(
                ErrorCode.UNAUTHENTICATED,
                "this is not the server's token; enter the token from the server's --token-file",
            )
        self._ends = {secret: end for secret, end in self._ends.items() if end > self._now()}
        secret = secrets.token_urlsafe(32)
        self._ends[secret] = self._now() + SESSION_SECONDS
        return secret

    def close(self, secret: str) -> None:
        """End a session."""
        self._ends.pop(secret, None)

    def check(self, headers: Headers) -> None:
        """Raise an error unless a request has the token or belongs to a session.

        Raises:
            MistifyError: UNAUTHENTICATED.
        """
        if self._token is None or _equal(headers.get("authorization", ""), f"Bearer {self._token}"):
            return
        if not self.has_open(headers):
            raise _unknown()

    def has_open(self, headers: Headers) -> bool:
        """Return whether a request belongs to an open session."""
        return self._ends.get(session_of(headers), 0.0) > self._now()

    @property
    def needed(self) -> bool:
        """Return whether the server needs a token."""
        return self._token is not None


class AccessMiddleware:
    """Middleware that refuses cross-site and unauthenticated requests.

    - Without a token, the server listens on loopback and only accepts loopback names in `Host`. Any other
      name indicates DNS rebinding.
    - Requests with side effects must not come from pages of other sites, according to `Origin`.
    - All paths except `OPEN_PATHS` need the token or a session.

    Pages read from `request.state.needs_token` whether the server needs a token, and from
    `request.state.in_session` whether the browser has sent it.

    Args:
        app: Handles accepted requests.
        origins: Origins at which browsers reach the server through a proxy; they define the scheme of
            requests with their hosts.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions, origins: Collection[str] = ()) -> None:
        self._app = app
        self._sessions = sessions
        self._schemes = {parts.netloc: parts.scheme for parts in map(urlsplit, origins)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        needed = self._sessions.needed
        scope.setdefault("state", {}).update(
            needs_token=needed, in_session=needed and self._sessions.has_open(headers)
        )
        host = headers.get("host", "").lower()
        scope["scheme"] = self._schemes.get(host, scope["scheme"])
        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the response to a refused request; None if the request is accepted."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._sessions.needed and _host_name(host) not in _LOOPBACK_NAMES:
            return _refused("host", host, "a name of this machine, such as localhost")
        own = f"{scope['scheme']}://{host}"
        if scope["method"] not in _SAFE_METHODS and headers.get("origin", own) != own:
            expected = f"{own}, or, behind a proxy that forwards the host, one of --http-origin"
            return _refused("origin", headers["origin"], expected)
        try:
            if scope["path"] not in OPEN_PATHS and not scope["path"].startswith(_OPEN_PREFIX):
                self._sessions.check(headers)
        except MistifyError as error:
            if wants_page(headers):
                return RedirectResponse(f"{LOGIN}?next={quote(scope['path'], safe='')}", HTTPStatus.SEE_OTHER)
            return problem_response(error)
        return None


def session_of(headers: Headers) -> str:
    """Return the secret in the cookie of a request; empty if there is none."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _equal(value: str, expected: str) -> bool:
    return hmac.compare_digest(value.encode(), expected.encode())


def _unknown() -> MistifyError:
    return MistifyError(
        ErrorCode.UNAUTHENTICATED,
        "the token is missing or wrong; send `Authorization: Bearer TOKEN` with the token from "
        "the server's --token-file",
    )


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _refused(header: str, value: str, expected: str) -> ASGIApp:
    message = f"got the {header} {value[:200]!r}; expected {expected}; requests from other sites are refused"
    return problem_response(MistifyError(ErrorCode.UNAUTHENTICATED, message), HTTPStatus.FORBIDDEN)
