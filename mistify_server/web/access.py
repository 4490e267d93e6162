"""Who is let in: host, origin, token or session are checked before anything else of a request is read."""

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

#: The cookie of a session, and for how many seconds it holds.
COOKIE: Final = "mistify_session"
SESSION_SECONDS: Final = 12 * 3600

#: The page to log in at.
LOGIN: Final = "/login"

#: Paths for which nobody has to be known: pages cannot be seen without their styles.
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/v1/session", LOGIN})
_OPEN_PREFIX: Final = "/static/"

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

#: Of every answer without its own: pages take nothing from elsewhere, are in no frame, and tell no site where
#: they were.
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "style-src 'self' 'unsafe-inline'; "  # Plotly styles its own drawings
    "base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Sessions:
    """The sessions of browsers that have sent the token.

    Args:
        token: The server's token; None where it needs none.
        now: Returns seconds.
    """

    def __init__(self, token: str | None, now: Callable[[], float] = time.monotonic) -> None:
        self._token = token
        self._now = now
        self._ends: dict[str, float] = {}

    def open(self, token: str) -> str:
        """Return the secret of a new session.

        Raises:
            MistifyError: UNAUTHENTICATED, it is not the token.
        """
        if self._token is not None and not _equal(token, self._token):
            raise MistifyError(
                ErrorCode.UNAUTHENTICATED,
                "this is not the token of the server; enter the one in the server's --token-file",
            )
        self._ends = {secret: end for secret, end in self._ends.items() if end > self._now()}
        secret = secrets.token_urlsafe(32)
        self._ends[secret] = self._now() + SESSION_SECONDS
        return secret

    def close(self, secret: str) -> None:
        """End a session."""
        self._ends.pop(secret, None)

    def check(self, headers: Headers) -> None:
        """Check that a request has the token, or belongs to a session.

        Raises:
            MistifyError: UNAUTHENTICATED, it has neither.
        """
        if self._token is None or _equal(headers.get("authorization", ""), f"Bearer {self._token}"):
            return
        if self._ends.get(session_of(headers), 0.0) <= self._now():
            raise _unknown()

    @property
    def needed(self) -> bool:
        """Return whether the server needs a token."""
        return self._token is not None


class AccessMiddleware:
    """Refusal of requests that a page of another site may have sent, or that come from unknown senders.

    - Without a token the server is on loopback, and answers to names of loopback alone: another name in
      `Host` is that of a site that has led its own name here (DNS rebinding).
    - What changes something comes from no page of another site: browsers send `Origin`.
    - All other paths than `OPEN_PATHS` need the token or a session.

    Args:
        app: Answers requests that are let in.
        origins: Origins under which a proxy shows the server: a request with the host of one was made to its
            scheme.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions, origins: Collection[str] = ()) -> None:
        self._app = app
        self._sessions = sessions
        self._schemes = {parts.netloc: parts.scheme for parts in map(urlsplit, origins)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = Headers(scope=scope).get("host", "").lower()
        scope["scheme"] = self._schemes.get(host, scope["scheme"])
        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer to a request that is not let in; None for the others."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._sessions.needed and _host_name(host) not in _LOOPBACK_NAMES:
            return _refused("host", host, "a name of this machine, such as localhost")
        own = f"{scope['scheme']}://{host}"
        if scope["method"] not in _SAFE_METHODS and headers.get("origin", own) != own:
            expected = f"{own}, or behind a proxy that passes the host on one of --http-origin"
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
    """Return the secret in the cookie of a request, empty where there is none."""
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
        "the request has no token or the wrong one; send `Authorization: Bearer TOKEN` with the token from "
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
