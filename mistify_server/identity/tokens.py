"""Tokens of callers, and the interface of their store."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mistify.quotas import UNLIMITED, Quota
from mistify_server.identity.callers import CallerId, Scope


@dataclass(frozen=True)
class AccessToken:
    """A token of a caller. Its secret is not stored.

    Attributes:
        name: Name of the caller, unique within the tenant.
        tenant: The tenant to which its holder belongs.
        sha256: Digest of the secret, in hexadecimal.
        created_unix_ms: Time of its creation, in milliseconds since 1970.
        expires_unix_ms: Time from which it is refused; None for never.
        limits: Limits on what its holder uses at the same time.
    """

    name: str
    tenant: str
    sha256: str
    scopes: frozenset[Scope]
    created_unix_ms: int
    expires_unix_ms: int | None = None
    limits: Quota = UNLIMITED

    @property
    def holder(self) -> CallerId:
        """Return the name with the tenant."""
        return CallerId(self.tenant, self.name)


class TokenStore(ABC):
    """Store of a tenant's tokens by name."""

    #: The tenant to which the tokens belong.
    tenant: str

    @abstractmethod
    def add(self, token: AccessToken) -> None:
        """Add a token of the tenant, also if one with its name was revoked.

        Raises:
            MistifyError: CONFLICT, the name is taken.
        """

    @abstractmethod
    def find(self, digests: Collection[str]) -> dict[str, AccessToken]:
        """Return the tokens, of any tenant, whose secrets have one of some digests, by digest."""

    @abstractmethod
    def all(self) -> list[AccessToken]:
        """Return the tenant's tokens, by name."""

    @abstractmethod
    def limits(self, name: str) -> Quota:
        """Return the limits of a caller, even if their token was revoked; without any if there was none."""

    @abstractmethod
    def set_limits(self, name: str, changed: Mapping[str, int | None]) -> Quota:
        """Change some limits of a token, and return all of them.

        Args:
            changed: Field of `Quota` -> its new value.

        Raises:
            MistifyError: NOT_FOUND, there is no token with this name.
        """

    @abstractmethod
    def revoke(self, name: str) -> None:
        """Remove a token; it is refused from then on. Its limits stay: its holder may have jobs and uploads.

        Raises:
            MistifyError: NOT_FOUND, there is no token with this name.
        """
