"""Storage of submitted jobs, many in one transaction."""

from collections.abc import Sequence
from typing import NamedTuple

from mistify.jobs.job import Job
from mistify_server.jobs.grouped_calls import GroupedCalls
from mistify_server.store.changes import Submission
from mistify_server.store.directory import Store
from mistify_server.store.jobs import NewJob


class _Submitted(NamedTuple):
    submission: Submission
    owner: str | None


class SubmittedJobs:
    """Stores the submitted jobs of a tenant; use it from one event loop.

    Each commit waits for the disk. So the jobs that are submitted meanwhile are stored together, by the next
    transaction, and each caller waits until the one with its job is on the disk.

    Args:
        store: The store of the tenant.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._create: GroupedCalls[_Submitted, Job] = GroupedCalls(self._create_all)

    async def create(self, submission: Submission, owner: str | None) -> Job:
        """Store a job within the limit of its submitter.

        Args:
            owner: The server that gets its first lease; None for no server.

        Returns:
            The job, or the one that already has its key.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text; QUOTA_EXCEEDED; UNAVAILABLE.
        """
        return await self._create(_Submitted(submission, owner))

    def _create_all(self, together: Sequence[_Submitted]) -> Sequence[Job | Exception]:
        submitters = {each.submission.job.submitted_by for each in together}
        most = {name: self._store.tokens.limits(name).jobs for name in submitters}
        return self._store.jobs.create_all(
            [NewJob(each.submission, most[each.submission.job.submitted_by], each.owner) for each in together]
        )
