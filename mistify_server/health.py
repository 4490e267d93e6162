"""The health of a server's store, which anyone may ask for: it looks at no tenant's jobs."""

import asyncio
from typing import Final

from mistify.jobs.part import GoalSelection
from mistify_server.store.directory import Store

_NO_GOALS: Final = GoalSelection()


class StoreHealth:
    """The health of the store of all tenants: whether calls to it can succeed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def reachable(self) -> bool:
        """Return whether calls will probably succeed, without asking the store."""
        return self._store.reachable()

    async def check(self) -> None:
        """Raise an error unless jobs can be read.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be read.
        """
        await asyncio.to_thread(self._store.jobs.page, 1, 1, None, _NO_GOALS)
