"""Access control: checks of host, origin and caller before the rest of a request is read."""

from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistify.errors import ErrorCode, MistifyError
from mistify_server.identity.audit import RECORDED, AuditLog
from mistify_server.identity.authentication import Credential, unauthenticated
from mistify_server.identity.callers import Caller, set_caller
from mistify_server.identity.callers import Scope as CallerScope
from mistify_server.identity.open_calls import OpenCalls
from mistify_server.web.client import INDEX
from mistify_server.web.problems import error_response, problem_response, wants_page
from mistify_server.web.sessions import Sessions

#: Path of the login page.
LOGIN: Final = "/login"

#: Paths that report the state of the server even while nobody's token can be looked up.
_HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})

#: Paths without authentication; static files are needed by the login page, and the client by pip.
OPEN_PATHS: Final = _HEALTH_PATHS | {"/v1/session", LOGIN}
_OPEN_PREFIXES: Final = ("/static/", f"{INDEX}/")

#: Paths for administrators, paths where only they may change something, and paths for those who upload, who
#: alone may find out which files the server has. All other paths need `read`, or `submit` for methods with
#: side effects.
_ADMIN_PATHS: Final = ("/tokens", "/v1/tokens")
_ADMIN_CHANGES: Final = ("/v1/rollouts",)
_SUBMIT_PATHS: Final = ("/v1/files",)

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


class AccessMiddleware:
    """Middleware that refuses cross-site requests, and requests that the caller may not make.

    - Without a token, the server listens on loopback and only accepts loopback names in `Host`. Any other
      name indicates DNS rebinding.
    - Requests with side effects must not come from pages of other sites, according to `Origin`.
    - All paths except `OPEN_PATHS` need a token or a session with the scope of `scope_of`.

    It records requests that change something, and refused ones of known callers. Requests end with their
    token; a response that has begun is left incomplete. Pages read from
    `request.state` whether the server needs a token (`needs_token`), whether the browser has a session
    (`in_session`), and who the caller is (`caller`, None if unknown).

    Args:
        app: Handles accepted requests.
        origins: Origins at which browsers reach the server through a proxy; they define the scheme of
            requests with their hosts.
    """

    def __init__(
        self,
        app: ASGIApp,
        sessions: Sessions,
        audit: AuditLog,
        calls: OpenCalls,
        origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._audit = audit
        self._calls = calls
        self._schemes = {parts.netloc: parts.scheme for parts in map(urlsplit, origins)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        headers = Headers(scope=scope)
        caller = in_session = None
        credential = of_session = self._sessions.credential(headers)
        try:
            if scope["path"] not in _HEALTH_PATHS:
                if of_session is not None:
                    caller = in_session = await self._sessions.caller(of_session)
                sent = Credential.of_header(headers.get("authorization", ""))
                if (with_token := await self._sessions.caller(sent)) is not None:
                    caller, credential = with_token, sent
        except MistifyError as error:  # the store cannot be read
            await problem_response(error)(scope, receive, send)
            return
        scope.setdefault("state", {}).update(
            needs_token=self._sessions.token_required,
            in_session=in_session is not None,
            caller=caller,
        )
        scope["scheme"] = self._schemes.get(headers.get("host", "").lower(), scope["scheme"])
        status, location, has_begun = 500, "", False

        async def send_with_headers(message: Message) -> None:
            nonlocal status, location, has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                sent = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    sent.setdefault(name, value)
                status, location = message["status"], sent.get("location", "")
            await send(message)

        foreign, forbidden = self._cross_site(scope), _forbidden(scope, caller)
        if caller is not None:
            set_caller(caller)
        try:
            with self._calls.begun(credential) as call:
                try:
                    async with call.waiting():
                        await (foreign or forbidden or self._app)(scope, receive, send_with_headers)
                except MistifyError as error:
                    if not call.ended:
                        raise
                    if not has_begun:
                        await problem_response(error)(scope, receive, send_with_headers)
        finally:
            if caller is not None and foreign is None and (forbidden is not None or _is_recorded(scope)):
                outcome = "OK" if status < HTTPStatus.BAD_REQUEST else f"HTTP {status}"
                self._audit.record(caller, f"{scope['method']} {scope['path']}", location, outcome)

    def _cross_site(self, scope: Scope) -> ASGIApp | None:
        """Return the response to a request from another site; None if it is not from one."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._sessions.token_required and _host_name(host) not in _LOOPBACK_NAMES:
            return _refused("host", host, "a name of this machine, such as localhost")
        own = f"{scope['scheme']}://{host}"
        if scope["method"] not in _SAFE_METHODS and headers.get("origin", own) != own:
            expected = f"{own}, or, behind a proxy that forwards the host, one of --http-origin"
            return _refused("origin", headers["origin"], expected)
        return None


def _forbidden(scope: Scope, caller: Caller | None) -> ASGIApp | None:
    """Return the response to a request that the caller may not make; None if they may."""
    if not _is_closed(scope["path"]):
        return None
    if caller is None:
        if wants_page(Headers(scope=scope)):
            query = scope["query_string"].decode("latin-1")
            wanted = scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"{LOGIN}?next={quote(wanted, safe='')}", HTTPStatus.SEE_OTHER)
        return problem_response(unauthenticated())
    try:
        caller.check(scope_of(scope["method"], scope["path"]))
    except MistifyError as error:
        return error_response(Request(scope), error)
    return None


def _is_recorded(scope: Scope) -> bool:
    return _is_closed(scope["path"]) and scope_of(scope["method"], scope["path"]) in RECORDED


def scope_of(method: str, path: str) -> CallerScope:
    """Return the scope that a request needs."""
    if _is_below(path, _ADMIN_PATHS):
        return CallerScope.ADMIN
    if method in _SAFE_METHODS:
        return CallerScope.SUBMIT if _is_below(path, _SUBMIT_PATHS) else CallerScope.READ
    return CallerScope.ADMIN if _is_below(path, _ADMIN_CHANGES) else CallerScope.SUBMIT


def _is_below(path: str, others: Collection[str]) -> bool:
    """Return whether a path is one of others, or below one."""
    return any(path == each or path.startswith(f"{each}/") for each in others)


def _is_closed(path: str) -> bool:
    """Return whether a path needs a caller."""
    return path not in OPEN_PATHS and not path.startswith(_OPEN_PREFIXES)


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _refused(header: str, value: str, expected: str) -> ASGIApp:
    message = f"got the {header} {value[:200]!r}; expected {expected}; requests from other sites are refused"
    return problem_response(MistifyError(ErrorCode.UNAUTHENTICATED, message), HTTPStatus.FORBIDDEN)
