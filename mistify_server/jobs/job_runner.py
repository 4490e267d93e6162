"""Execution of one job (paper 4.3)."""

import asyncio
from collections.abc import Callable, Sequence

from mistify.jobs.job import GoalState, Job, JobPriority, JobState
from mistify_server.engines.base import TaskEngine
from mistify_server.identity.callers import CallerId
from mistify_server.jobs.adaptation import CollectiveAdaptation
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.step_queue import StepQueue, StepScheduler
from mistify_server.jobs.store_writer import StoreWriter
from mistify_server.jobs.time_left import TimeLeftEstimator
from mistify_server.store.changes import Addition, JobChanged
from mistify_server.store.directory import Store
from mistify_server.store.leases import JobLease, UnknownGoalsError
from mistify_server.store.plans import BatchState
from mistify_server.tracing.traces import Traces


class JobRunner:
    """Runs a job from its state in the store.

    Args:
        job: The job in its state in the store.
        states: The job's batches in their state in the store.
        lease: The server's lease of the job.
        submitter: Who submitted the job, with the tenant to which it belongs.
        on_change: Called after every change of the job.
        scheduler: Starts the steps of all jobs.
        traces: Records the steps of the job.
    """

    def __init__(
        self,
        store: Store,
        engine: TaskEngine,
        job: Job,
        states: Sequence[BatchState],
        *,
        lease: JobLease,
        submitter: CallerId,
        on_change: Callable[[], None],
        writer: StoreWriter,
        scheduler: StepScheduler,
        traces: Traces,
    ) -> None:
        paused = job.state is JobState.PAUSED
        self._begun = False
        time_left = TimeLeftEstimator(states, job.goals, engine.slots, job.seconds)
        self.lease = lease
        self._store = store
        self._log = JobLog(store.jobs, job, on_change, writer, time_left, lease=lease)
        self._log.paused = paused
        self._queue = StepQueue(
            scheduler,
            job.id,
            submitter,
            priority=job.priority,
            paused=paused,
            before_step=self._begin,
        )
        self._adaptations = {
            state.plan.number: CollectiveAdaptation(
                state, self._log, engine, store, self._queue, traces=traces
            )
            for state in states
        }

    @property
    def caller(self) -> CallerId:
        """Return the caller whose job it is."""
        return self._queue.caller

    @property
    def goals(self) -> int:
        """Return the number of the job's goals."""
        return len(self._log.goals)

    @property
    def priority(self) -> JobPriority:
        """Return the priority by which steps start."""
        return self._queue.priority

    @property
    def begun(self) -> bool:
        """Return whether this server has begun a step of the job."""
        return self._begun

    @property
    def busy_since(self) -> float:
        """Return when the oldest step in progress began, in seconds since 1970; now if there is none."""
        return self._queue.busy_since

    @property
    def writing(self) -> asyncio.Lock:
        """Return the lock that is held while changes of the job are written."""
        return self._log.writing

    @property
    def waiting(self) -> int:
        """Return the number of steps that are ready but wait for workers."""
        return self._queue.waiting

    @property
    def paused(self) -> bool:
        """Return whether the job is paused, so that no step starts; set this after the state in the store."""
        return self._queue.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        if paused != self.paused:
            self._begun = True  # a job that is resumed is stored as running, also before its first step
        self._log.paused = self._queue.paused = paused

    def prioritize(self, priority: JobPriority) -> None:
        """Start steps by another priority, which is already in the store."""
        self._queue.priority = priority

    async def run(self) -> JobChanged:
        """Adapt all batches of the job until every goal has ended, and return the last change.

        Raises:
            LeaseLostError: Another server has taken the job, or it was ended.
            MistifyError: The store rejects the changes permanently.
        """
        for adaptation in self._adaptations.values():
            adaptation.queue_steps()
        while True:
            await self._queue.run()
            # This comes last, when nothing else needs a worker. Goals may be added in the meantime.
            while any(adaptation.queue_reference() for adaptation in self._adaptations.values()):
                await self._queue.run()
            async with self._log.writing:
                if self._queue.empty:
                    end = self._end()
                    try:
                        await self._log.write(end)
                    except UnknownGoalsError:
                        await self.catch_up()
                    else:
                        return end

    async def _begin(self) -> None:
        """Store that the job runs when its first step has a worker: jobs that wait need no further write."""
        if not self._begun:
            async with self._log.writing:
                if not self._begun:
                    await self._log.write(JobChanged(JobState.RUNNING))
                    self._begun = True

    def _end(self) -> JobChanged:
        """Return the change that ends the job."""
        goals = self._log.goals
        if all(goal.state is GoalState.FAILED for goal in goals):
            return JobChanged(JobState.FAILED, goals[0].reason)
        return JobChanged(JobState.DONE)

    async def catch_up(self) -> None:
        """Add goals that another server has added in the store; the caller holds `writing`."""
        job, states = await asyncio.to_thread(self._store.jobs.with_batches, self._log.job_id)
        new = job.goals[self.goals :]
        if new:
            self.grow(Addition(new, [state.plan for state in states], "", None))

    def grow(self, addition: Addition) -> None:
        """Add goals to the running job after they were added in the store."""
        self._log.add(addition)
        for plan in addition.plans:
            self._adaptations[plan.number].grow(plan)
