"""Watchers of jobs: any number of them follow a job's events as they occur."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from mistify.errors import ErrorCode, MistifyError, is_outage
from mistify_server.jobs.event_reads import EventRead, NextChange
from mistify_server.store.directory import Store

_PAGE: Final = 256

#: Seconds until a watcher retries after it could not read events.
_RETRY_SECONDS: Final = 1.0


class Watchers:
    """The watchers of a server's jobs.

    Events are read on the event loop, which takes milliseconds, unless the database is another program, which
    may let its callers wait.

    Args:
        has_others: Returns whether other servers use the same store.

    Attributes:
        failures: Job -> why this server cannot continue it; its watchers get the error once they are woken.
    """

    def __init__(self, store: Store, has_others: Callable[[], bool]) -> None:
        self.failures: dict[str, MistifyError] = {}
        self._has_others = has_others
        self._store = store
        self._stopped: MistifyError | None = None
        self._changed: WeakValueDictionary[str, NextChange] = WeakValueDictionary()

    async def watch(
        self, tenant: str, job_id: str, after: int, *, so_far: bool = False
    ) -> AsyncIterator[EventRead]:
        """Yield the events of a job like `RunningJobs.watch`."""
        while True:
            changed = self._changed.setdefault(job_id, NextChange())
            try:
                reading = partial(self._read_events, tenant, job_id, after)
                latest = await changed.events((tenant, after), reading)
            except MistifyError as error:
                if not is_outage(error) or self._stopped is not None:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if latest.events:
                after = latest.events[-1].sequence
                yield latest
                continue
            if latest.ended or so_far:
                return
            failure = self.failures.get(job_id, self._stopped)
            # Other servers may be of the version that can read it.
            if failure is not None and not (self._has_others() and failure.code is ErrorCode.STORE_VERSION):
                raise failure
            await changed.wait()

    def wake_all(self) -> None:
        """Notify the watchers of all jobs, of which some may have new events."""
        for job_id in list(self._changed):
            self.wake(job_id)

    def wake(self, job_id: str) -> None:
        """Notify the watchers of a job about new events, or about the reason why no more will come."""
        changed = self._changed.pop(job_id, None)
        if changed is not None:
            changed.set()

    def stop(self) -> None:
        """End all watchers with an error that lets them retry: the server is stopping."""
        # A watcher between two events is not waiting, and sees the error at its next read.
        self._stopped = MistifyError(ErrorCode.UNAVAILABLE, "the server is stopping; the job can be resumed")
        self.wake_all()

    async def _read_events(self, tenant: str, job_id: str, after: int) -> EventRead:
        """Read the next events of a tenant's job, and whether it has ended."""
        jobs = self._store.of(tenant).jobs

        def read() -> EventRead:
            ended = jobs.ended(job_id)  # first: no events follow the ones read then
            return EventRead(jobs.events(job_id, after, _PAGE), ended)

        return await asyncio.to_thread(read) if self._store.remote else read()
