"""Removal of finished jobs: first from the lists, and a day later with their files."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from mistify.errors import MistifyError
from mistify.parsing.quantities import format_bytes
from mistify.times import utc_now
from mistify_server.engines.base import TaskEngine
from mistify_server.identity.callers import current_caller
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.directory import Store
from mistify_server.store.jobs import JobStore
from mistify_server.store.removal import Removal, remove_ended

#: How long a removal can be undone.
UNDONE_WITHIN: Final = timedelta(days=1)

#: Interval between removals of the files of jobs.
_INTERVAL_SECONDS: Final = 600.0

_log = logging.getLogger(__name__)


def final_removal(removed_unix_ms: int) -> int:
    """Return the time from which a removal cannot be undone, in milliseconds since 1970."""
    return removed_unix_ms + int(UNDONE_WITHIN.total_seconds() * 1000)


class JobRemovals:
    """Removes jobs. Methods raise `MistifyError`: NOT_FOUND for unknown jobs, and those of other tenants."""

    def __init__(
        self, store: Store, jobs: RunningJobs, engine: TaskEngine, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._engine = engine
        self._now = now
        self._removing = asyncio.Lock()

    @property
    def _own(self) -> JobStore:
        """Return the jobs of the caller's tenant."""
        return self._store.of(current_caller().tenant).jobs

    async def hide(self, job_id: str) -> int:
        """Remove a finished job from the lists, and return until when this can be undone.

        Returns:
            The time in milliseconds since 1970.

        Raises:
            MistifyError: CONFLICT, the job is unfinished or a group tunes its packages.
        """
        removed_ms = await asyncio.to_thread(self._own.hide, job_id, self._now_ms())
        _log.info("the job was removed, and can be restored for a day", extra={"job": job_id})
        return final_removal(removed_ms)

    async def restore(self, job_id: str) -> None:
        """Undo `hide`; a job that was not removed does not change."""
        await asyncio.to_thread(self._own.restore, job_id)
        _log.info("the job was restored", extra={"job": job_id})

    async def remove(self, job_id: str) -> int:
        """Remove a finished job with the files that only it uses, and return the number of bytes freed.

        Raises:
            MistifyError: CONFLICT, the job is unfinished or a group tunes its packages; UNAVAILABLE, a model
                is being added to the store.
        """
        await asyncio.to_thread(self._own.ended, job_id)  # raises an error for those of others
        # The caller may disconnect, but the files of a removed job must be removed too.
        removal = await asyncio.shield(asyncio.create_task(self._remove([job_id], None)))
        if job_id in removal.kept:
            raise removal.kept[job_id]
        return removal.freed_bytes

    async def remove_due(self) -> None:
        """Remove the jobs whose removal cannot be undone any more, with their files."""
        due = self._now_ms() - int(UNDONE_WITHIN.total_seconds() * 1000)
        if job_ids := await asyncio.to_thread(self._store.jobs.hidden, due):
            removal = await self._remove(job_ids, due)
            for job_id, error in removal.kept.items():
                _log.warning("the files of a removed job are kept: %s", error, extra={"job": job_id})

    async def keep_removing(self) -> None:
        """Call `remove_due` at once and then every ten minutes."""
        while True:
            try:
                await self.remove_due()
            except (OSError, MistifyError) as error:
                _log.warning("the files of removed jobs could not be removed: %s", error)
            except Exception:  # the next attempt may succeed; otherwise, the disk would fill up
                _log.exception("the files of removed jobs could not be removed because of an internal error")
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def _remove(self, job_ids: Sequence[str], hidden_before_ms: int | None) -> Removal:
        async with self._removing:
            of_others = time.time() - await asyncio.to_thread(self._store.leases.oldest_step)
            busy_since = min(self._engine.busy_since, self._jobs.busy_since, of_others)
            removal = await asyncio.to_thread(
                remove_ended, self._store, job_ids, busy_since, hidden_before_ms
            )
        for job_id in job_ids:
            if job_id not in removal.kept:
                _log.info("the job was removed", extra={"job": job_id})
        _log.info("files of removed jobs were removed: %s", format_bytes(removal.freed_bytes, 3))
        return removal

    def _now_ms(self) -> int:
        return int(self._now().timestamp() * 1000)
