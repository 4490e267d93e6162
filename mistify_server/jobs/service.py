"""The porting service, independent of gRPC and HTTP: plan, submit, add goals, list, cancel, watch, fetch."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, starmap

from mistify.config.reading import BatchReading
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import GoalState, Job, JobEvent, JobPriority, JobState
from mistify.jobs.part import GoalSelection, JobPage, JobPart, part_of
from mistify.jobs.plan import Plan
from mistify.times import utc_now
from mistify_server.identity.callers import current_caller
from mistify_server.identity.tenants import ByTenant
from mistify_server.jobs.event_reads import EventRead
from mistify_server.jobs.preparing import PreparedJob, PreparedJobs, Request
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.jobs.served import ServedBatch, served_batches
from mistify_server.jobs.store_writer import completed
from mistify_server.jobs.submissions import JointSubmissions, SubmittedJobs
from mistify_server.names import check_idempotency_key, check_job_name, checked_tags, new_id
from mistify_server.planning.batch import InspectedBatch, ResolvedBatch
from mistify_server.planning.forecast.basis import ForecastBases
from mistify_server.planning.inspector import BatchInspector
from mistify_server.planning.limits import out_of_reach, unusable, within_reach
from mistify_server.planning.lookup.reading import read_and_resolve, read_configs
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.planning.planned_goals import PlannedGoals, plan_goals
from mistify_server.planning.rejection import reject, reject_too_many
from mistify_server.planning.snapshot import Inspections, JobSnapshot
from mistify_server.store.changes import Addition, Submission
from mistify_server.store.directory import Store
from mistify_server.store.jobs import ANY_JOB, JobChange, JobSearch
from mistify_server.store.plans import BatchInputs
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tracing.context import current_traceparent

MOST_JOBS_PER_PAGE = 100

#: Maximum number of jobs per page when they are listed without goals.
MOST_JOBS_ALONE_PER_PAGE = 1_000

#: Default maximum number of goals in a job.
DEFAULT_MAX_GOALS = 10_000

#: Maximum number of goals per page, unless a single job has more: a page is one message.
MOST_GOALS_PER_PAGE = 20_000

#: Number of latest events to return: each worker reports progress at most twice a second.
_LATEST_EVENTS = 200

_log = logging.getLogger(__name__)


class PortingService:
    """The porting jobs of the caller's tenant. Every method raises `MistifyError`: NOT_FOUND for others.

    `store` is that of all tenants; `resolvers` find the models, data and devices of each tenant.
    """

    def __init__(
        self,
        store: Store,
        jobs: RunningJobs,
        resolvers: ByTenant[BatchResolver],
        inspector: BatchInspector,
        *,
        max_goals: int = DEFAULT_MAX_GOALS,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._of_tenant = store.of
        self._jobs = jobs
        self._resolvers = resolvers
        self._inspector = inspector
        self._max_goals = max_goals
        self._now = now
        self._prepared = ByTenant(
            lambda tenant: PreparedJobs(store.of(tenant), resolvers.of(tenant), inspector, max_goals)
        )
        self._submitted = ByTenant(lambda tenant: SubmittedJobs(store.of(tenant)))
        self._together = ByTenant(
            lambda tenant: JointSubmissions(
                self._prepared.of(tenant), self._submitted.of(tenant), self._submission, self._started
            )
        )

    @property
    def _store(self) -> Store:
        """Return the store of the caller's tenant."""
        return self._of_tenant(current_caller().tenant)

    async def _check_known(self, job_id: str) -> None:
        """Raise NOT_FOUND unless the caller's tenant has a job, before it is changed or waited for."""
        await asyncio.to_thread(self._store.jobs.ended, job_id)

    async def submit(
        self,
        config_text: str,
        idempotency_key: str,
        name: str = "",
        tags: Sequence[str] = (),
        priority: JobPriority = JobPriority.NORMAL,
    ) -> Job:
        """Resolve and inspect configs, check their limits, plan them, and start a job for them.

        Args:
            config_text: JSON as in the paper's Figure 3.
            idempotency_key: A repeated key returns the job of its first submission, which is restored if it
                was removed; empty for no key.
            name: The job's name for people; empty for none.
            tags: The job's tags.
            priority: Jobs with a higher one go first.

        Returns:
            The job as it is stored.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems, or
                QUOTA_EXCEEDED, in which case nothing was stored or started; CONFLICT, the key belongs to
                another config.
        """
        check_idempotency_key(idempotency_key)
        check_job_name(name)
        about = name, checked_tags(tags), priority
        request = Request(config_text, idempotency_key, current_caller().name, *about)
        prepared = await self._together.own.submit(request, offered=self._jobs.offers_new)
        if isinstance(prepared, Job):
            return prepared
        # The caller may disconnect, but a stored job must be started.
        return await asyncio.shield(asyncio.create_task(self._start(self._submission(request, prepared))))

    async def check_quota(self) -> None:
        """Raise QUOTA_EXCEEDED if the caller may have no further unfinished job."""
        await asyncio.to_thread(self._prepared.own.check_quota, current_caller().name)

    async def _start(self, submission: Submission) -> Job:
        """Store and start a job, or return one that was submitted with the same key in the meantime."""
        kept = await self._submitted.own.create(submission, offered=self._jobs.offers_new)
        if kept is submission.job:
            self._started(submission)
        return kept

    def _started(self, submission: Submission) -> None:
        """Start a job that was just stored."""
        job = submission.job
        _log.info("a job was submitted", extra={"job": job.id, "goals": len(job.goals)})
        self._jobs.start_new(job, submission.plans, current_caller().id)

    async def plan(self, config_text: str) -> Plan:
        """Return the plan of a batch of configs, without storing or starting anything.

        Args:
            config_text: JSON as in the paper's Figure 3.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems, except for
                infeasible limits, which become part of the plan.
        """
        reading, resolved = await asyncio.to_thread(self._resolved, config_text)
        problems = ProblemCollector()
        with reading.problems_at_their_places():
            inspected = await self._inspector.inspect(resolved, problems, ("accuracy", "step", "trial"))
            return await asyncio.to_thread(self._plan, inspected, problems)

    async def add_goals(self, job_id: str, config_text: str, idempotency_key: str) -> None:
        """Insert goals into the trees of a job; each is adapted from its nearest looser checkpoint.

        A running job includes them immediately. A finished job runs again for the new goals only: finished
        goals stay unchanged, including failed and cancelled ones. `insert_goals` decides where each goal
        starts. The new goals follow the existing ones, in the order of their configs.

        Args:
            config_text: JSON with new ids. Models, data and algorithms must match the job's, and may be
                omitted if the job has only one.
            idempotency_key: A repeated key adds nothing to the job; empty for no key.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems, in which case
                nothing was added; CONFLICT, the key was used for other goals; QUOTA_EXCEEDED, the job has
                finished, and its submitter has too many unfinished ones.
        """
        check_idempotency_key(idempotency_key)
        inspections: Inspections = {}
        await self._check_known(job_id)
        while True:
            async with self._jobs.held(job_id):
                if idempotency_key:
                    added = partial(self._store.jobs.added, job_id, idempotency_key, config_text)
                    if await asyncio.to_thread(added):
                        return
                lost = await asyncio.to_thread(self._lost, job_id)
                snapshot = await asyncio.to_thread(self._snapshot, job_id)
                reading = await asyncio.to_thread(read_configs, config_text, self._max_goals, snapshot.common)
                configs = reading.checked()
                reject_too_many(len(configs), self._max_goals, len(snapshot.job.goals))
                with reading.problems_at_their_places():
                    resolved = await asyncio.to_thread(snapshot.resolve, configs)
                    uninspected = [
                        batch for batch in snapshot.uninspected(resolved) if batch.number not in inspections
                    ]
                    if not uninspected:
                        plans, goals = await asyncio.to_thread(
                            snapshot.insert, resolved, inspections, self._store.jobs
                        )
                if not uninspected:
                    traceparent = current_traceparent()
                    addition = Addition(goals, plans, config_text, idempotency_key or None, traceparent)
                    # The caller may disconnect, but the job must include stored goals.
                    if await completed(self._keep_goals(snapshot.job, addition, lost)):
                        return
            if uninspected:
                with reading.problems_at_their_places():
                    inspections = {**inspections, **await self._inspected(uninspected)}

    async def _keep_goals(self, job: Job, addition: Addition, lost: int) -> bool:
        """Store goals and add them to their job, unless a checkpoint that they may depend on was lost.

        Args:
            job: A held job.
            lost: Number of goals that had finished without a checkpoint when the addition was planned.
        """
        async with self._jobs.writing(job.id):
            most = await asyncio.to_thread(self._most_unfinished, job.submitted_by)
            add = partial(self._store.jobs.add_goals, job.id, addition, most, (len(job.goals), lost))
            if not await asyncio.to_thread(add):
                return False
            _log.info("goals were added", extra={"job": job.id, "goals": len(addition.goals)})
            self._jobs.grow(job.id, addition)
            return True

    async def _inspected(self, batches: Sequence[ResolvedBatch]) -> Inspections:
        """Return the inspections of batches, by batch number."""
        problems = ProblemCollector()
        inspected = await self._inspector.inspect(batches, problems)
        reject(problems.problems)
        return {batch.number: inspection for batch, inspection in inspected}

    async def part(self, job_id: str, selection: GoalSelection | None = None) -> JobPart:
        """Return a job with selected goals, or with all goals."""
        if selection is not None:
            return await asyncio.to_thread(self._store.jobs.part, job_id, selection)
        return part_of(await asyncio.to_thread(self._store.jobs.job, job_id), None)

    async def inputs(self, job_id: str) -> list[BatchInputs]:
        """Return the model, the data and the algorithm of each batch of a job."""
        return await asyncio.to_thread(self._store.jobs.inputs, job_id)

    async def config_text(self, job_id: str) -> str:
        """Return the config with which a job was submitted."""
        return await asyncio.to_thread(self._store.jobs.config_text, job_id)

    async def details(self, job_id: str, goal_id: str) -> GoalDetails:
        """Return the layers and operators of a goal's network and its training curve."""
        return await asyncio.to_thread(self._store.jobs.details, job_id, goal_id)

    async def served_batches(self, job_id: str) -> list[ServedBatch]:
        """Return the batches of a job whose goals can have any of many tasks; none before they are prepared.

        Raises:
            MistifyError: CORRUPT_PACKAGE, a file of the store is damaged.
        """
        return await asyncio.to_thread(lambda: list(served_batches(self._store, job_id)))

    async def jobs(
        self,
        page_size: int,
        page_token: str,
        selection: GoalSelection | None = None,
        search: JobSearch = ANY_JOB,
    ) -> JobPage:
        """Return a page of jobs, newest first.

        Args:
            search: The jobs to return.
        """
        alone = selection is not None and selection.empty
        most = MOST_JOBS_ALONE_PER_PAGE if alone else MOST_JOBS_PER_PAGE
        size = min(page_size, most) if page_size > 0 else MOST_JOBS_PER_PAGE
        return await asyncio.to_thread(
            self._store.jobs.page, size, MOST_GOALS_PER_PAGE, page_token or None, selection, search
        )

    async def change(
        self,
        job_id: str,
        name: str | None = None,
        tags: Sequence[str] | None = None,
        priority: JobPriority | None = None,
    ) -> None:
        """Give a job another name for people, other tags or another priority; None keeps them.

        Raises:
            MistifyError: INVALID_CONFIG, the name or the tags are invalid.
        """
        if name is not None:
            check_job_name(name)
        change = JobChange(name, None if tags is None else checked_tags(tags), priority)
        await self._check_known(job_id)
        await self._jobs.change(job_id, change)

    async def cancel(self, job_id: str) -> None:
        """Stop a job; finished goals keep their packages."""
        await self._check_known(job_id)
        await self._jobs.cancel(job_id)

    async def pause(self, job_id: str) -> None:
        """Let a job start no further steps; those in progress end first. A finished job does not change."""
        await self._check_known(job_id)
        await self._jobs.set_paused(job_id, paused=True)

    async def resume(self, job_id: str) -> None:
        """Let a paused job continue; no effect on other jobs."""
        await self._check_known(job_id)
        await self._jobs.set_paused(job_id, paused=False)

    def watch(self, job_id: str, after_sequence: int, *, so_far: bool = False) -> AsyncIterator[EventRead]:
        """Yield a job's events after a sequence number, then new events as they occur, until the job ends.

        Watchers of a job get the same objects, each with at least one event.

        Args:
            after_sequence: The last known sequence number; 0 for all events.
            so_far: Whether to end with the latest event even if the job continues.
        """
        return self._jobs.watch(current_caller().tenant, job_id, after_sequence, so_far=so_far)

    async def latest_events(self, job_id: str) -> list[JobEvent]:
        """Return the latest events of a job in order, enough to show the steps in progress."""
        return await asyncio.to_thread(self._store.jobs.latest_events, job_id, _LATEST_EVENTS)

    def _resolved(self, config_text: str) -> tuple[BatchReading, list[ResolvedBatch]]:
        return read_and_resolve(config_text, self._resolvers.own, self._max_goals)

    def _plan(self, inspected: Sequence[InspectedBatch], problems: ProblemCollector) -> Plan:
        chosen = [batch.with_precisions() for batch in inspected]
        problems.add(chain.from_iterable(starmap(unusable, chosen)))
        reject(problems.problems)
        reachable = [batch for batch in starmap(within_reach, chosen) if batch.resolved.batch.configs]
        batches = (
            self._planned(batch).to_planned_batch(batch.inspection, self._slots) for batch in reachable
        )
        return Plan(tuple(batches), tuple(chain.from_iterable(starmap(out_of_reach, chosen))))

    def _planned(self, batch: InspectedBatch) -> PlannedGoals:
        return plan_goals(batch.resolved, batch.inspection, ForecastBases(self._store.jobs), self._slots)

    @property
    def _slots(self) -> int:
        return self._inspector.engine.slots

    def _most_unfinished(self, submitter: str) -> int | None:
        return self._store.tokens.limits(submitter).jobs

    def _submission(self, request: Request, prepared: PreparedJob) -> Submission:
        """Return the submission of a new job for the current caller."""
        now = self._now()
        job = Job(
            id=new_id(now),
            state=JobState.QUEUED,
            goals=tuple(prepared.goals),
            created_unix_ms=int(now.timestamp() * 1000),
            submitted_by=request.submitter,
            name=request.name,
            tags=tuple(request.tags),
            priority=request.priority,
        )
        key = request.idempotency_key or None
        return Submission(job, prepared.plans, request.config_text, key, current_traceparent())

    def _snapshot(self, job_id: str) -> JobSnapshot:
        jobs = self._store.jobs
        return JobSnapshot(*jobs.with_batches(job_id), self._resolvers.own)

    def _lost(self, job_id: str) -> int:
        """Return the number of finished goals that may lack the checkpoint from which others would start."""
        states = self._store.jobs.goal_states(job_id)
        return states[GoalState.FAILED] + states[GoalState.CANCELLED]
