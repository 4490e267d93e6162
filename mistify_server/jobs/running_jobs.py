"""Start, watch, cancel and stop the jobs of a server."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from structlog.contextvars import bound_contextvars

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job, JobState
from mistify_server.engines.base import TaskEngine
from mistify_server.identity.callers import CallerId
from mistify_server.jobs.caller_limits import CallerLimits
from mistify_server.jobs.event_reads import EventRead
from mistify_server.jobs.job_runner import JobRunner
from mistify_server.jobs.job_traces import JobTraces
from mistify_server.jobs.step_queue import StepScheduler
from mistify_server.jobs.store_writer import StoreWriter, completed
from mistify_server.jobs.taken_jobs import attempts, taken_job
from mistify_server.jobs.watchers import Watchers
from mistify_server.store.changes import Addition, JobChanged
from mistify_server.store.directory import Store
from mistify_server.store.jobs import JobChange
from mistify_server.store.leases import FIRST_FENCE, JobLease, JobSituation, LeaseLostError
from mistify_server.store.plans import BatchPlan, BatchState
from mistify_server.tracing.context import within
from mistify_server.tracing.traces import NO_TRACES, Traces

#: Seconds within which a change of limits is noticed.
_LIMITS_SECONDS = 5.0

#: Maximum number of jobs that are read from the store at the same time, so that they are read in their order.
_MOST_READ_TOGETHER: Final = 8

#: Number of waiting jobs that a server reads before it starts the first step.
_FIRST_WAITING: Final = 64

#: What callers learn of an internal error.
_INTERNAL_ERROR = "an internal error; see the server's log for details"

_log = logging.getLogger(__name__)


class RunningJobs:
    """Runs jobs concurrently on one engine, and lets any number of watchers follow them.

    A single thread writes changes. While the store is unavailable, jobs and watchers wait with it, and then
    continue automatically.
    """

    def __init__(self, store: Store, engine: TaskEngine, traces: Traces = NO_TRACES) -> None:
        self._store = store
        self._engine = engine
        self._traces, self._job_traces = traces, JobTraces(store.jobs, traces)
        self._writer = StoreWriter()
        self._limits = CallerLimits(lambda tenant: store.of(tenant).tokens)
        self._scheduler = StepScheduler(engine.slots, self._limits.most_steps)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runners: dict[str, JobRunner] = {}
        #: Whether other servers use the same store.
        self.has_others = False
        self._watchers = Watchers(store, lambda: self.has_others)
        self._stopping = False
        self._reading = asyncio.Semaphore(_MOST_READ_TOGETHER)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def offers_new(self) -> bool:
        """Return whether new jobs are offered to other servers: there are some, and this one is busy."""
        return self.has_others and not self.idle

    @property
    def idle(self) -> bool:
        """Return whether the first step of another job would start at once."""
        return self._scheduler.idle and len(self._runners) == len(self._tasks)

    @property
    def leases(self) -> dict[str, JobLease]:
        """Return the leases of the jobs that are running, by the ids of jobs."""
        return {job_id: runner.lease for job_id, runner in self._runners.items()}

    @property
    def waiting(self) -> int:
        """Return the number of steps in all jobs that are ready but wait for workers. Thread-safe."""
        return sum(runner.waiting for runner in tuple(self._runners.values()))

    @property
    def busy_since(self) -> float:
        """Return when the oldest step in progress began, in seconds since 1970; now if there is none.

        A step refers to the results of its tasks once the last one has finished.
        """
        return min((runner.busy_since for runner in self._runners.values()), default=time.time())

    def steps_of(self, caller: CallerId) -> int:
        """Return the number of a caller's steps in progress. Thread-safe."""
        return self._scheduler.running(caller)

    async def keep_starting(self) -> None:
        """Read the limits of callers periodically, and start steps that they have come to allow."""
        while True:
            await asyncio.sleep(_LIMITS_SECONDS)
            try:
                await self._limits.refresh({runner.caller for runner in self._runners.values()})
            except Exception:
                _log.exception("the limits of callers cannot be read because of an internal error")
            self._scheduler.wake()

    def start(self, job_id: str) -> None:
        """Run a job from its current state, unless it is running.

        If the server stops, another one or the next one resumes it.
        """
        if self._stopping or self._is_running(job_id):
            return
        self._watchers.failures.pop(job_id, None)
        self._runners.pop(job_id, None)
        task = asyncio.create_task(self._run(job_id), name=job_id)
        self._tasks[job_id] = task
        task.add_done_callback(self._discard)

    def start_new(self, job: Job, plans: Sequence[BatchPlan], submitter: CallerId) -> None:
        """Run a job that was just stored for this server, without reading it again, unless it is running."""
        if self._stopping or self._is_running(job.id):
            return
        self.start(job.id)
        states, lease = [BatchState(plan, None, {}) for plan in plans], JobLease(job.id, FIRST_FENCE)
        self._runners[job.id] = self._runner(lease, job, states, submitter)

    def grow(self, job_id: str, addition: Addition) -> None:
        """Add goals that were added to a job in the store; start the job if it is not running."""
        runner = self._runners.get(job_id)
        if not self._is_running(job_id):
            self.start(job_id)
        elif runner is not None:  # otherwise the job is about to be read from the store, with the goals
            runner.grow(addition)
        self.wake_watchers(job_id)

    async def drop(self, lease: JobLease) -> None:
        """Stop running a job by a lease that has ended; its results are refused anyway."""
        runner = self._runners.get(lease.job_id)
        if runner is not None and runner.lease == lease:
            about = {"job": lease.job_id}
            if runner.begun:
                _log.warning("%s", LeaseLostError(lease.job_id), extra=about)
            else:
                _log.info("another server runs the job, or has ended it", extra=about)
            await self._stop(lease.job_id)
            self.wake_watchers(lease.job_id)

    async def catch_up(self, job_id: str) -> None:
        """Follow changes of other servers to a running job; give it up if it cannot be read any more."""
        try:
            await self._catch_up(job_id)
        except MistifyError as error:
            if error.code is not ErrorCode.STORE_VERSION:
                raise
            await self._stop(job_id)
            await self._give_up(job_id, error)

    async def _catch_up(self, job_id: str) -> None:
        async with self.held(job_id), self.writing(job_id):
            (now,) = await asyncio.to_thread(self._store.leases.situations, [job_id], unfinished=False)
            runner = self._runners.get(job_id)
            if runner is None or runner.lease.fence != now.fence:
                return
            if now.error is not None:
                raise now.error
            if runner.paused != now.paused:
                runner.paused = now.paused
            runner.prioritize(now.priority)
            if runner.goals < now.goals:
                await runner.catch_up()

    def could_run(self, now: JobSituation) -> bool:
        """Check that this server does not run a job, and has not had to give it up."""
        return not self._is_running(now.job_id) and now.job_id not in self._watchers.failures

    def differs(self, now: JobSituation) -> bool:
        """Check whether other servers have changed a running job in the store."""
        runner = self._runners.get(now.job_id)
        known = None if runner is None else (runner.paused, runner.priority, runner.goals)
        changed = now.error is not None or known != (now.paused, now.priority, now.goals)
        return known is not None and changed

    def resume(self) -> None:
        """Run every job that an earlier server left unfinished.

        Those with steps that had begun are read first, then those of the highest priority, then the oldest.
        Steps start once the first ones are read, because thousands of waiting jobs take some time.
        """
        unfinished = [now for now in self._store.leases.situations([]) if now.free]
        unfinished.sort(key=lambda now: (now.begun, now.priority.level), reverse=True)
        begun = sum(now.begun for now in unfinished)
        self._scheduler.expect(now.job_id for now in unfinished[: begun + _FIRST_WAITING])
        for now in unfinished:
            self.start(now.job_id)

    async def cancel(self, job_id: str) -> None:
        """Stop a job permanently, keeping its results. A finished job does not change."""
        # The caller may disconnect, but a job must not stay half cancelled.
        await asyncio.shield(asyncio.create_task(self._cancel(job_id)))

    async def set_paused(self, job_id: str, *, paused: bool) -> None:
        """Let a job start no further steps, also after a restart of the server; or let it continue.

        Steps in progress end at their next checkpoint, with their results. A finished job does not change.
        """
        await completed(self._set_paused(job_id, paused=paused))

    async def change(self, job_id: str, change: JobChange) -> None:
        """Change the name, the tags or the priority of a job."""
        await completed(self._change(job_id, change))

    async def stop(self) -> None:
        """Stop all jobs; the next server resumes them."""
        self._stopping = True
        await asyncio.gather(*map(self._stop, list(self._tasks)))
        self._watchers.stop()

    @property
    def stopping(self) -> bool:
        """Return whether the server stops its jobs or has stopped them, and starts no others."""
        return self._stopping

    def watch(
        self, tenant: str, job_id: str, after: int, *, so_far: bool = False
    ) -> AsyncIterator[EventRead]:
        """Yield every event with a number above `after`, then new events as they occur, until the job ends.

        Events come as they are read, at least one at a time. With `so_far`, only yield existing events.

        Args:
            tenant: The tenant of the watcher; only those of the same tenant share reads.

        Raises:
            MistifyError: NOT_FOUND, there is no such job; UNAVAILABLE, the server is stopping; any other, the
                job cannot continue.
        """
        return self._watchers.watch(tenant, job_id, after, so_far=so_far)

    @asynccontextmanager
    async def held(self, job_id: str) -> AsyncIterator[None]:
        """Prevent, within the block, that a job is read in order to run it, or held by others."""
        lock = self._locks.setdefault(job_id, asyncio.Lock())
        async with lock:
            yield

    def writing(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Prevent changes to a held job within the block."""
        runner = self._runners.get(job_id)
        return nullcontext() if runner is None else runner.writing

    def _is_running(self, job_id: str) -> bool:
        task = self._tasks.get(job_id)
        return task is not None and not task.done()

    async def _cancel(self, job_id: str) -> None:
        while True:
            await self._stop(job_id)
            async with self.held(job_id):
                if job_id not in self._tasks:  # it may be restarted while it ends
                    await self._end(job_id, JobChanged(JobState.CANCELLED))
                    return

    async def _change(self, job_id: str, change: JobChange) -> None:
        async with self.held(job_id):
            await asyncio.to_thread(self._store.jobs.change, job_id, change)
            if change.priority is not None and (runner := self._runners.get(job_id)):
                runner.prioritize(change.priority)

    async def _set_paused(self, job_id: str, *, paused: bool) -> None:
        async with self.held(job_id), self.writing(job_id):
            write = partial(self._store.jobs.set_paused, job_id, paused=paused)
            if await self._writer.write(write):
                _log.info("the job is %s", "paused" if paused else "resumed", extra={"job": job_id})
                if runner := self._runners.get(job_id):
                    runner.paused = paused
        self.wake_watchers(job_id)

    async def _stop(self, job_id: str) -> None:
        task = self._tasks.get(job_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _discard(self, task: asyncio.Task[None]) -> None:
        self._scheduler.dismiss(task.get_name())
        if self._tasks.get(task.get_name()) is task:
            del self._tasks[task.get_name()]
            self._runners.pop(task.get_name(), None)

    async def _run(self, job_id: str) -> None:
        with bound_contextvars(job=job_id):
            try:
                await self._adapt(job_id)
            except LeaseLostError as error:
                _log.warning("%s", error)
            except MistifyError as error:
                await self._give_up(job_id, error)
            except Exception:
                _log.exception("the job could not be ended because of an internal error")
                await self._give_up(job_id, MistifyError(ErrorCode.INTERNAL, _INTERNAL_ERROR))

    async def _give_up(self, job_id: str, error: MistifyError) -> None:
        """Note why this server cannot continue a job; those of the version that has written it can."""
        _log.error("the job cannot continue until the server is restarted: %s", error)
        self._watchers.failures[job_id] = error
        self.wake_watchers(job_id)  # first: the store may be unavailable, or the job stopped meanwhile
        if error.code is ErrorCode.STORE_VERSION:
            await self._writer.write(partial(self._store.leases.give_back, job_id))

    async def _adapt(self, job_id: str) -> None:
        """Run a job; an internal error fails it."""
        try:
            trace = await self._job_traces.of(job_id)
            with within("" if trace is None else str(trace.position)):
                async with self.held(job_id):
                    runner = self._runners.get(job_id) or await self._read_runner(job_id)
                    if runner is None:
                        return
                    self._runners[job_id] = runner
                if runner.caller not in self._limits:
                    await self._learn_limits(runner.caller)
                end = await runner.run()
            self._job_traces.record(trace, end)
        except MistifyError:
            raise
        except Exception:
            _log.exception("the job failed because of an internal error")
            failed = JobChanged(JobState.FAILED, _INTERNAL_ERROR)
            runner = self._runners.get(job_id)
            async with self.held(job_id):
                await self._end(job_id, failed, runner.lease if runner else None)

    async def _learn_limits(self, caller: CallerId) -> None:
        """Read the limits of a caller as soon as the store is available."""
        async for attempt in attempts():
            with attempt:
                await self._limits.learn(caller)

    async def _read_runner(self, job_id: str) -> JobRunner | None:
        """Return the runner of a job, read from the store; None if it has ended."""
        async with self._reading:
            taken = await taken_job(self._store, job_id)
        return None if taken is None else self._runner(*taken)

    def _runner(
        self, lease: JobLease, job: Job, states: Sequence[BatchState], submitter: CallerId
    ) -> JobRunner:
        wake = partial(self.wake_watchers, job.id)
        return JobRunner(
            self._store,
            self._engine,
            job,
            states,
            lease=lease,
            submitter=submitter,
            on_change=wake,
            writer=self._writer,
            scheduler=self._scheduler,
            traces=self._traces,
        )

    async def _end(self, job_id: str, end: JobChanged, lease: JobLease | None = None) -> None:
        """End a job as soon as the store is available, unless it has already ended."""
        if await self._writer.write(partial(self._store.jobs.end, job_id, end, lease)):
            _log.info("the job is %s", end.state.value, extra={"job": job_id})
            trace = await self._job_traces.of(job_id)
            self._job_traces.record(trace, end)
        self.wake_watchers(job_id)

    def wake_all_watchers(self) -> None:
        """Notify the watchers of all jobs, of which some may have new events."""
        self._watchers.wake_all()

    def wake_watchers(self, job_id: str) -> None:
        """Notify the watchers of a job about new events, or about the reason why no more will come."""
        self._watchers.wake(job_id)
