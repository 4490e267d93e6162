"""Authentication of callers by their tokens."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.quotas import Quota
from mistify_server.grouped_calls import GroupedCalls
from mistify_server.identity.callers import ADMINISTRATOR, LOCAL, Caller, Scope
from mistify_server.identity.quotas import check_limits
from mistify_server.identity.tokens import AccessToken, TokenStore
from mistify_server.names import check_name

#: Start of the secrets that the server makes, by which scanners of source code find leaked ones.
_PREFIX: Final = "mistify_"

#: Random bytes of a secret.
_SECRET_BYTES: Final = 32

#: Longest life of a token, in days.
MOST_DAYS: Final = 3650

_DAY_MS: Final = 24 * 3600 * 1000

_BEARER: Final = "Bearer "


@dataclass(frozen=True)
class Credential:
    """The SHA-256 digest of the secret that a caller sent, in hexadecimal."""

    sha256: str

    @classmethod
    def of(cls, secret: str) -> "Credential":
        """Return the credential of a secret.

        One round of SHA-256 suffices, because nobody can guess 32 random bytes.
        """
        return cls(hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest())

    @classmethod
    def of_header(cls, header: str) -> "Credential | None":
        """Return the credential in an `authorization` header; None if there is none."""
        return cls.of(header.removeprefix(_BEARER)) if header.startswith(_BEARER) else None


class Authenticator:
    """Finds out who calls the server; use it from one event loop.

    Tokens that are added, revoked or expire while the server runs count from the next call. Callers that come
    while tokens of others are looked up in another program share the next look.

    Args:
        token: The administrator's token; None for a server that needs no tokens.
        tokens: The tokens of other callers, of any tenant.
        now: Returns the time in seconds since 1970.
        remote: Whether the tokens are in another program, for which the event loop must not wait.
    """

    def __init__(
        self,
        token: str | None,
        tokens: TokenStore,
        now: Callable[[], float] = time.time,
        *,
        remote: bool = False,
    ) -> None:
        self._administrator = None if token is None else Credential.of(token)
        self._tokens = tokens
        self._now = now
        self._looks: GroupedCalls[str, AccessToken | None] | None = None
        if remote:
            self._looks = GroupedCalls(self._find, pause_seconds=0.0)

    @property
    def token_required(self) -> bool:
        """True if only callers with a token are known."""
        return self._administrator is not None

    async def caller(self, credential: Credential | None) -> Caller | None:
        """Return the caller with a credential; None if there is none, or no longer.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be read.
        """
        if self._administrator is None:
            return LOCAL
        if credential is None:
            return None
        if hmac.compare_digest(credential.sha256, self._administrator.sha256):
            return ADMINISTRATOR
        digest = credential.sha256
        token = self._find([digest])[0] if self._looks is None else await self._looks(digest)
        if token is None or (token.expires_unix_ms or float("inf")) <= self._now() * 1000:
            return None
        return Caller(token.name, token.scopes, token.tenant)

    def _find(self, digests: Sequence[str]) -> list[AccessToken | None]:
        found = self._tokens.find(set(digests))
        return [found.get(digest) for digest in digests]


def create_token(
    tokens: TokenStore,
    name: str,
    scopes: Collection[Scope],
    days: int | None = None,
    limits: Mapping[str, int | None] | None = None,
) -> tuple[AccessToken, str]:
    """Add a token, and return it with its secret, which nothing can recover later.

    Args:
        tokens: The tokens of its tenant.
        days: Days until it expires; None for never.
        limits: Field of `Quota` -> limit on what its holder uses at the same time. Others are those of a
            revoked token with this name, which was perhaps made again for another secret.

    Raises:
        MistifyError: INVALID_CONFIG, the name, the scopes, the days or the limits cannot be used; CONFLICT,
            the name is taken.
    """
    check_name(tokens.tenant)
    check_name(name)
    if name in (LOCAL.name, ADMINISTRATOR.name):
        raise MistifyError(ErrorCode.CONFLICT, f'the name "{name}" is reserved; use another name')
    if not scopes:
        known = ", ".join(scope.value for scope in Scope)
        problem = Problem("scopes", "none", f"one or more of {known}", "a device needs read, tune and report")
        raise invalid_config([problem], "the token")
    if days is not None and not 1 <= days <= MOST_DAYS:
        problem = Problem("days", f"{days:,}", f"1 to {MOST_DAYS}", "leave it out for a token without an end")
        raise invalid_config([problem], "the token")
    chosen = limits or {}
    check_limits(Quota(**chosen))
    secret = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    now_ms = int(time.time() * 1000)
    expires_ms = None if days is None else now_ms + days * _DAY_MS
    quota, digest = replace(tokens.limits(name), **chosen), Credential.of(secret).sha256
    token = AccessToken(name, tokens.tenant, digest, frozenset(scopes), now_ms, expires_ms, quota)
    tokens.add(token)
    return token, secret


def unauthenticated() -> MistifyError:
    """Return the error for callers without a valid token."""
    return MistifyError(
        ErrorCode.UNAUTHENTICATED,
        "the token is missing, wrong or expired; send the server's token or one that its administrator made, "
        "with `--token-file FILE` on the command line and `Authorization: Bearer TOKEN` over HTTP",
    )
