"""Jobs of a store that several servers use: taken over, followed, and given back."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from mistify.errors import MistifyError
from mistify_server.engines.base import TaskEngine
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.leases import JobLease, JobSituation, Leases

#: Default length of a lease, in seconds.
LEASE_SECONDS: Final = 15.0

#: The part of a lease after which it is renewed, and after which others are looked at without notifications.
_INTERVAL: Final = 1 / 3

#: Minimum number of seconds between looks, also relative to those that the last look took: with thousands of
#: unfinished jobs, looking must not be all that the server does.
_PAUSE_SECONDS: Final = 0.1
_PAUSE_SHARE: Final = 10.0

_log = logging.getLogger(__name__)


class SharedJobs:
    """Keeps the leases of a server's jobs, and takes jobs that no server has, or that wait for a busy one.

    Servers learn of each other's changes by the announcements of the store, and look at all jobs after each.
    They also look now and then without one, so that nothing depends on announcements.

    Leases are renewed on a thread of their own: others may be busy for longer than a lease.

    Args:
        takes: Whether to take jobs.
        seconds: Length of a lease.
    """

    def __init__(
        self, leases: Leases, jobs: RunningJobs, engine: TaskEngine, *, takes: bool, seconds: float
    ) -> None:
        self.leases = leases
        self._jobs = jobs
        self._engine = engine
        self._takes = takes
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1, "lease")
        self._left = False
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._free: dict[str, float] = {}

    def on_change(self, job_id: str) -> None:
        """Note that other servers have changed a job, or any if the id is empty. Thread-safe."""
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._note, job_id)

    async def keep_renewing(self) -> None:
        """Renew the leases until cancelled."""
        while True:
            try:
                await self.renew()
            except Exception:
                _log.exception("leases cannot be renewed because of an internal error")
            await asyncio.sleep(_INTERVAL * self._seconds)

    async def keep_looking(self) -> None:
        """Follow the changes of other servers until cancelled."""
        while True:
            begun = self._loop.time()
            try:
                await self._look()
            except MistifyError as error:
                _log.debug("other servers cannot be seen: %s", error)
            except Exception:
                _log.exception("the jobs of other servers cannot be followed because of an internal error")
            await asyncio.sleep(max(_PAUSE_SECONDS, _PAUSE_SHARE * (self._loop.time() - begun)))
            try:
                await asyncio.wait_for(self._changed.wait(), _INTERVAL * self._seconds)
            except TimeoutError:
                self._jobs.wake_all_watchers()
            self._changed.clear()

    async def renew(self) -> None:
        """Renew the leases, if the store can be reached and the server has not left."""
        busy_since = min(self._jobs.busy_since, self._engine.busy_since)
        renew = partial(self._renew, time.time() - busy_since)
        try:
            self._jobs.has_others = await self._loop.run_in_executor(self._thread, renew)
        except MistifyError as error:
            _log.debug("leases cannot be renewed: %s", error)

    async def leave(self) -> None:
        """Give all jobs to other servers, after they have been stopped here; no lease is renewed any more."""
        with suppress(MistifyError):
            await self._loop.run_in_executor(self._thread, self._leave)

    def _renew(self, busy_seconds: float) -> bool:
        return not self._left and self.leases.renew(self._seconds, busy_seconds)

    def _leave(self) -> None:
        self._left = True  # on the thread: a renewal in progress ends first
        self.leases.leave()

    def _note(self, job_id: str) -> None:
        if job_id:
            self._jobs.wake_watchers(job_id)
        else:
            self._jobs.wake_all_watchers()
        self._changed.set()

    async def _look(self) -> None:
        held = self._jobs.leases
        situations = await asyncio.to_thread(self.leases.situations, tuple(held))
        # First, because the others may have to wait, or fail.
        if self._takes and not self._jobs.stopping:
            waiting = [now for now in situations if self._jobs.could_run(now)]
            self._take([now.job_id for now in waiting if now.free])
            if self._jobs.idle:
                await self._relieve([now for now in waiting if not now.free and not now.begun])
        for now in situations:
            lease = held.get(now.job_id)
            if lease is not None:
                await self._follow(lease, now)

    async def _follow(self, lease: JobLease, now: JobSituation) -> None:
        """Follow the changes of other servers to a job that this one runs; no job keeps it from others."""
        try:
            if lease.fence != now.fence:
                await self._jobs.drop(lease)
                self._changed.set()  # look again: there is another slot
            elif self._jobs.differs(now):
                await self._jobs.catch_up(now.job_id)
        except MistifyError:
            raise
        except Exception:
            about = {"job": now.job_id}
            _log.exception("the job cannot be followed because of an internal error", extra=about)

    def _take(self, free: list[str]) -> None:
        """Take a job if there is a slot for it, and those for which no server has had one for a while."""
        now = self._loop.time()
        self._free = {job_id: self._free.get(job_id, now) for job_id in free}
        for job_id, since in self._free.items():
            if self._jobs.idle or now - since > _INTERVAL * self._seconds:
                self._jobs.start(job_id)
                self._changed.set()  # look again: there may be another slot

    async def _relieve(self, waiting: list[JobSituation]) -> None:
        """Take a job for which its server has had no worker yet: the first one of the highest priority."""
        if waiting:
            job_id = max(waiting, key=lambda now: now.priority.level).job_id
            if await asyncio.to_thread(self.leases.take_unbegun, job_id):
                self._jobs.start(job_id)
            self._changed.set()  # look again: there may be another slot
