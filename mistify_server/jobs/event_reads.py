"""Events of jobs, read once for all watchers that have seen the same ones."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mistify.jobs.job import JobEvent

#: Maximum number of reads that are remembered: most watchers have seen all events or none.
_MOST_READS: Final = 8


@dataclass(frozen=True, eq=False)
class EventRead:
    """The next events of a job, and whether no others will follow them; one object for all their watchers."""

    events: Sequence[JobEvent]
    ended: bool


class NextChange(asyncio.Event):
    """The next change of a job, for which its watchers wait, and what they have read before it.

    A job may have thousands of watchers, which all read the same events after each change.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reads: dict[Hashable, asyncio.Task[EventRead]] = {}

    async def events(self, known: Hashable, read: Callable[[], Coroutine[Any, Any, EventRead]]) -> EventRead:
        """Return what `read` returns, which is called once for all watchers.

        Args:
            known: The watcher's tenant and last known event: only watchers with the same ones share a read.

        Raises:
            MistifyError: From `read`; the next call repeats it.
        """
        shared = self._reads.get(known)
        if shared is None:
            shared = self._reads[known] = asyncio.create_task(read())
            if len(self._reads) > _MOST_READS:
                del self._reads[next(iter(self._reads))]
        try:
            return await asyncio.shield(shared)  # others may still need it when this watcher leaves
        except Exception:
            if self._reads.get(known) is shared:
                del self._reads[known]
            raise
