"""Storage of submitted jobs, many in one transaction."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from mistify.errors import MistifyError
from mistify.jobs.job import Job
from mistify_server.jobs.store_writer import is_outage
from mistify_server.store.changes import Submission
from mistify_server.store.directory import Store
from mistify_server.store.jobs import NewJob

#: Maximum number of jobs that are stored in one transaction.
_MOST_TOGETHER: Final = 256


class _Waiting(NamedTuple):
    submission: Submission
    owner: str | None
    stored: "asyncio.Future[Job]"


class SubmittedJobs:
    """Stores the submitted jobs of a tenant; use it from one event loop.

    Each commit waits for the disk. So the jobs that are submitted meanwhile are stored together, by the next
    transaction, and each caller waits until the one with its job is on the disk.

    Args:
        store: The store of the tenant.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[_Waiting] = []
        self._storing: asyncio.Task[None] | None = None

    async def create(self, submission: Submission, owner: str | None) -> Job:
        """Store a job within the limit of its submitter.

        Args:
            owner: The server that gets its first lease; None for no server.

        Returns:
            The job, or the one that already has its key.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text; QUOTA_EXCEEDED; UNAVAILABLE.
        """
        stored: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(submission, owner, stored))
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store_waiting())
        return await stored

    async def _store_waiting(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
            for each, outcome in zip(together, await self._outcomes(together), strict=True):
                if each.stored.cancelled():
                    continue
                if isinstance(outcome, Job):
                    each.stored.set_result(outcome)
                else:
                    each.stored.set_exception(outcome)

    async def _outcomes(self, together: Sequence[_Waiting]) -> Sequence[Job | Exception]:
        """Store jobs, and return the job or the error of each."""
        try:
            return await asyncio.to_thread(self._create_all, together)
        except Exception as error:
            if len(together) == 1 or is_outage(error):
                return [error] * len(together)
        # One of them cannot be stored, which must not affect the others.
        return [outcome for each in together for outcome in await self._outcomes([each])]

    def _create_all(self, together: Sequence[_Waiting]) -> list[Job | MistifyError]:
        submitters = {each.submission.job.submitted_by for each in together}
        most = {name: self._store.tokens.limits(name).jobs for name in submitters}
        return self._store.jobs.create_all(
            [NewJob(each.submission, most[each.submission.job.submitted_by], each.owner) for each in together]
        )
