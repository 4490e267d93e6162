"""Preparation and storage of submitted jobs, many in one transaction."""

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Final, NamedTuple, TypeAlias

from mistify.jobs.job import Job
from mistify_server.grouped_calls import GroupedCalls
from mistify_server.jobs.preparing import PreparedJob, PreparedJobs, Request, Uninspected
from mistify_server.store.changes import Submission
from mistify_server.store.directory import Store
from mistify_server.store.jobs import NewJob

#: Maximum length of a config that is prepared together with others, which wait for it: some 50 goals.
_MOST_TEXT: Final = 20_000

#: Maximum number of submissions that are prepared together, within some 50 ms.
_MOST_TOGETHER: Final = 64


class SubmittedJob(NamedTuple):
    """A job to store, and whether to offer it to other servers, because this one has no worker for it."""

    submission: Submission
    offered: bool


class SubmittedJobs:
    """Stores the submitted jobs of a tenant; use it from one event loop.

    Each commit waits for the disk. So the jobs that are submitted meanwhile are stored together, by the next
    transaction, and each caller waits until the one with its job is on the disk.

    Args:
        store: The store of the tenant.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._create: GroupedCalls[SubmittedJob, Job] = GroupedCalls(self.create_all)

    async def create(self, submission: Submission, *, offered: bool) -> Job:
        """Store a job within the limit of its submitter; this server gets its first lease.

        Args:
            offered: Whether to offer it to other servers.

        Returns:
            The job, or the one that already has its key.

        Raises:
            MistifyError: CONFLICT, the key is known with another config text; QUOTA_EXCEEDED; UNAVAILABLE.
        """
        return await self._create(SubmittedJob(submission, offered))

    def create_all(self, together: Sequence[SubmittedJob]) -> Sequence[Job | Exception]:
        """Store jobs in one transaction, and return what `create` returns or raises for each."""
        submitters = {each.submission.job.submitted_by for each in together}
        most = {name: self._store.tokens.limits(name).jobs for name in submitters}
        return self._store.jobs.create_all(
            [
                NewJob(submission, most[submission.job.submitted_by], self._store.leases.server, offered)
                for submission, offered in together
            ]
        )


class _Asked(NamedTuple):
    """A submission, with whether to offer its job to other servers, and the context of its call."""

    request: Request
    offered: bool
    context: Context


class _Stored(NamedTuple):
    """A new job that is on the disk."""

    submission: Submission


_Answer: TypeAlias = Job | _Stored | Uninspected


class JointSubmissions:
    """Prepares and stores submissions of a tenant, and starts their jobs; use it from one event loop.

    Those that arrive together stay together from their configs to the disk, on one thread: they share what
    their preparations have in common, a transaction, and its wait for the disk.

    Args:
        new: Returns the submission of a request that is prepared, in the context of its call.
        start: Starts a job that was just stored, in the context of its call, on the event loop: even if its
            caller has gone.
    """

    def __init__(
        self,
        prepared: PreparedJobs,
        submitted: SubmittedJobs,
        new: Callable[[Request, PreparedJob], Submission],
        start: Callable[[Submission], None],
    ) -> None:
        self._prepared = prepared
        self._submitted = submitted
        self._new = new
        self._start = start
        self._together: GroupedCalls[_Asked, _Answer] = GroupedCalls(
            self._submit_all, _MOST_TOGETHER, on_answer=self._start_new
        )

    async def submit(self, request: Request, *, offered: bool) -> Job | PreparedJob:
        """Return the job of a submission, which is stored and started, or has had its key before.

        What would hold up others is only prepared: a large config, and one with sources to inspect.

        Args:
            offered: Whether to offer the job to other servers.

        Raises:
            MistifyError: See `PreparedJobs.of` and `SubmittedJobs.create`.
        """
        if len(request.config_text) > _MOST_TEXT:
            return await self._prepared.of(request)
        answer = await self._together(_Asked(request, offered, copy_context()))
        if isinstance(answer, Uninspected):
            return await self._prepared.inspected(answer)
        return answer.submission.job if isinstance(answer, _Stored) else answer

    def _submit_all(self, asked: Sequence[_Asked]) -> Sequence[_Answer | Exception]:
        outcomes = self._prepared.outcomes([each.request for each in asked])
        new = {
            number: SubmittedJob(each.context.run(self._new, each.request, outcome), each.offered)
            for number, (each, outcome) in enumerate(zip(asked, outcomes, strict=True))
            if isinstance(outcome, PreparedJob)
        }
        kept = self._submitted.create_all([*new.values()]) if new else ()
        stored = {
            number: _Stored(each.submission) if job is each.submission.job else job
            for (number, each), job in zip(new.items(), kept, strict=True)
        }
        return [
            stored[number] if isinstance(outcome, PreparedJob) else outcome
            for number, outcome in enumerate(outcomes)
        ]

    def _start_new(self, asked: _Asked, answer: _Answer) -> None:
        if isinstance(answer, _Stored):
            asked.context.run(self._start, answer.submission)
