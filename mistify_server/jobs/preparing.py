"""Submissions before they are stored: recognized, resolved, inspected and planned, one or many at a time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, TypeAlias

from mistify.config.reading import BatchReading
from mistify.jobs.job import Goal, Job, JobPriority
from mistify_server.identity.quotas import check_unfinished
from mistify_server.planning.batch import InspectedBatch, ResolvedBatch
from mistify_server.planning.forecast.basis import ForecastBases
from mistify_server.planning.inspector import BatchInspector
from mistify_server.planning.lookup.reading import read_and_resolve
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.planning.planned_goals import PlannedGoals, plan_all
from mistify_server.store.directory import Store
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.problems import ProblemCollector


class Request(NamedTuple):
    """A submission as its caller sends it; without an idempotency key, the key is empty.

    Attributes:
        name: The job's name for people; empty for none.
    """

    config_text: str
    idempotency_key: str
    submitter: str
    name: str = ""
    tags: Sequence[str] = ()
    priority: JobPriority = JobPriority.NORMAL


class PreparedJob(NamedTuple):
    """The goals of a submission, in the order of the configs, and the plans of its batches."""

    goals: Sequence[Goal]
    plans: Sequence[BatchPlan]


class Uninspected(NamedTuple):
    """A submission with sources that a worker has to inspect."""

    reading: BatchReading
    resolved: Sequence[ResolvedBatch]


#: The job that has the key of a submission, or what becomes a new one.
Outcome: TypeAlias = Job | PreparedJob | Uninspected


class PreparedJobs:
    """Prepares the submissions of a tenant.

    For submissions that are prepared together, the models and data that they share, with the edges of similar
    ones and the limits of their callers, are looked up once.

    Args:
        store: The store of the tenant.
        resolver: Finds its models, data and devices.
        max_goals: Maximum number of goals in a job.
    """

    def __init__(
        self, store: Store, resolver: BatchResolver, inspector: BatchInspector, max_goals: int
    ) -> None:
        self._store = store
        self._resolver = resolver
        self._inspector = inspector
        self._max_goals = max_goals

    async def of(self, request: Request) -> Job | PreparedJob:
        """Return the goals and plans of a submission, or the job that has its key, which is restored.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems; QUOTA_EXCEEDED,
                the caller may have no further unfinished job; CONFLICT, the key belongs to another config;
                UNAVAILABLE or INTERNAL, the store cannot be read, or a worker failed for a reason unrelated
                to the configs.
        """
        (outcome,) = await asyncio.to_thread(self.outcomes, [request])
        if isinstance(outcome, Exception):
            raise outcome
        return await self.inspected(outcome) if isinstance(outcome, Uninspected) else outcome

    async def inspected(self, submission: Uninspected) -> PreparedJob:
        """Return the goals and plans of a submission, once a worker has inspected its sources.

        Raises:
            MistifyError: See `of`.
        """
        reading, problems = submission.reading, ProblemCollector()
        with reading.problems_at_their_places():
            inspected = await self._inspector.inspect(submission.resolved, problems)
            planned = await asyncio.to_thread(
                plan_all, inspected, problems, ForecastBases(self._store.jobs), self._inspector.engine.slots
            )
        return _prepared(reading, planned)

    def outcomes(self, requests: Sequence[Request]) -> list[Outcome | Exception]:
        """Return the outcome or the error of each of several submissions. Thread-safe."""
        keys = {request.idempotency_key for request in requests} - {""}
        shared = _SharedLookups(
            known=self._store.jobs.known_keys(keys) if keys else frozenset(),
            check_quota=cache(self.check_quota),
            resolver=self._resolver.remembering(),
            inspected=self._inspector.lookup(),
            bases=ForecastBases(self._store.jobs),
        )
        return [self._outcome(request, shared) for request in requests]

    def _outcome(self, request: Request, shared: "_SharedLookups") -> Outcome | Exception:
        try:
            return self._prepare(request, shared)
        except Exception as error:  # which must not affect the others
            return error

    def _prepare(self, request: Request, shared: "_SharedLookups") -> Outcome:
        if request.idempotency_key in shared.known:
            earlier = self._earlier(request)
            if earlier is not None:
                return earlier
        shared.check_quota(request.submitter)  # before a long inspection
        reading, resolved = read_and_resolve(request.config_text, shared.resolver, self._max_goals)
        problems, inspected = ProblemCollector(), list[InspectedBatch]()
        with reading.problems_at_their_places():
            for batch in resolved:
                known = shared.inspected(batch, problems)
                if known is None:
                    return Uninspected(reading, resolved)
                inspected.append(known)
            slots = self._inspector.engine.slots
            return _prepared(reading, plan_all(inspected, problems, shared.bases, slots))

    def _earlier(self, request: Request) -> Job | None:
        """Return the job that was submitted with the key of a submission, and restore it."""
        known = self._store.jobs.find(request.idempotency_key, request.config_text)
        if known is None:
            return None
        if known.removed_unix_ms is not None:
            self._store.jobs.restore(known.id)
        return replace(known, removed_unix_ms=None)

    def check_quota(self, submitter: str) -> None:
        """Raise QUOTA_EXCEEDED if a caller may have no further unfinished job."""
        most = self._store.tokens.limits(submitter).jobs
        if most is not None:
            check_unfinished(submitter, self._store.jobs.unfinished_of(submitter), most)


class _SharedLookups(NamedTuple):
    """Lookups that the submissions which are prepared together make once.

    Attributes:
        known: The keys with which jobs were submitted before.
        check_quota: Checks the quota of a submitter.
        inspected: See `BatchInspector.lookup`.
    """

    known: frozenset[str]
    check_quota: Callable[[str], None]
    resolver: BatchResolver
    inspected: Callable[[ResolvedBatch, ProblemCollector], InspectedBatch | None]
    bases: ForecastBases


def _prepared(reading: BatchReading, planned: Sequence[PlannedGoals]) -> PreparedJob:
    goals = {goal.id: goal for batch in planned for goal in batch.goals}
    return PreparedJob(
        goals=[goals[config.id] for config in reading.configs.values()],
        plans=[batch.plan for batch in planned],
    )
