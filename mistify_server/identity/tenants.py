"""What each tenant has for itself: nobody reaches that of another one."""

import asyncio
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Generic, TypeVar

from mistify_server.identity.callers import DEFAULT_TENANT, current_caller

_T = TypeVar("_T")


class ByTenant(Generic[_T]):
    """Something that every tenant has, made for each at its first use. Thread-safe.

    What has been made is there at once, also while that of another tenant is being made.

    Args:
        make: Makes it for a tenant.
        tenants: The tenants for which it is made at once, besides `default`.
    """

    def __init__(self, make: Callable[[str], _T], tenants: Iterable[str] = ()) -> None:
        self._make = make
        self._making = Lock()
        self._made = {tenant: make(tenant) for tenant in dict.fromkeys((DEFAULT_TENANT, *tenants))}

    @property
    def own(self) -> _T:
        """Return that of the tenant whose call is being handled."""
        return self.of(current_caller().tenant)

    async def ready(self) -> _T:
        """Return `own`, which is made on another thread than that of the event loop."""
        tenant = current_caller().tenant
        return self._made[tenant] if tenant in self._made else await asyncio.to_thread(self.of, tenant)

    def of(self, tenant: str) -> _T:
        """Return that of a tenant, which comes from a credential and never from a request."""
        if tenant not in self._made:
            with self._making:
                if tenant not in self._made:
                    # A new dictionary, because others may be going through this one.
                    self._made = {**self._made, tenant: self._make(tenant)}
        return self._made[tenant]

    def all(self) -> list[_T]:
        """Return those of all tenants in the order in which they were made, for the server itself."""
        return list(self._made.values())
