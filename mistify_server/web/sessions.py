"""Sessions of browsers."""

import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final, NamedTuple

from starlette.datastructures import Headers

from mistify.errors import ErrorCode, MistifyError
from mistify_server.identity.authentication import Authenticator, Credential
from mistify_server.identity.callers import Caller

#: Name of the session cookie, and its lifetime in seconds.
COOKIE: Final = "mistify_session"
SESSION_SECONDS: Final = 12 * 3600

#: Maximum number of open sessions of a token; the oldest one ends for another.
MOST_SESSIONS: Final = 100


class _Session(NamedTuple):
    """A session: the credential that opened it, and its end on the clock of `Sessions`."""

    credential: Credential
    end: float


class Sessions:
    """Sessions of browsers that have sent a token. A session ends at the latest with its token.

    Args:
        now: Returns seconds from an arbitrary start.
    """

    def __init__(self, authenticator: Authenticator, now: Callable[[], float] = time.monotonic) -> None:
        self._authenticator = authenticator
        self._now = now
        self._open: dict[str, _Session] = {}

    async def open(self, token: str) -> str:
        """Return the secret of a new session.

        Raises:
            MistifyError: UNAUTHENTICATED, the token is wrong.
        """
        credential = Credential.of(token)
        if await self._authenticator.caller(credential) is None:
            raise MistifyError(
                ErrorCode.UNAUTHENTICATED,
                "this token is wrong or expired; enter the token from the server's --token-file, or one that "
                "its administrator made",
            )
        now = self._now()
        self._open = {secret: kept for secret, kept in self._open.items() if kept.end > now}
        own = [secret for secret, kept in self._open.items() if kept.credential == credential]
        for secret in own[: max(0, len(own) - MOST_SESSIONS + 1)]:
            del self._open[secret]
        secret = secrets.token_urlsafe(32)
        self._open[secret] = _Session(credential, now + SESSION_SECONDS)
        return secret

    def close(self, secret: str) -> None:
        """End a session."""
        self._open.pop(secret, None)

    async def caller(self, credential: Credential | None) -> Caller | None:
        """Return the caller with a credential; None if there is none."""
        return await self._authenticator.caller(credential)

    def credential(self, headers: Headers) -> Credential | None:
        """Return the credential of the open session in which a request was sent; None if there is none."""
        session = self._open.get(session_of(headers))
        if session is None or session.end <= self._now() or not self.token_required:
            return None
        return session.credential

    @property
    def token_required(self) -> bool:
        """True if only callers with a token are known."""
        return self._authenticator.token_required


def session_of(headers: Headers) -> str:
    """Return the secret in the cookie of a request; empty if there is none."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
