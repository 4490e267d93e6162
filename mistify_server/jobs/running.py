"""The jobs that run on this server: started, watched, cancelled, stopped."""

import asyncio
import logging
from collections.abc import AsyncIterator

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, Job, JobEvent, JobState
from mistify_server.engines.base import Engine
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.runner import JobRunner
from mistify_server.store.changes import Addition
from mistify_server.store.directory import Store

_PAGE = 256

_log = logging.getLogger(__name__)


class RunningJobs:
    """Runs jobs side by side over one engine, and lets any number of watchers follow them.

    Calls of the store take milliseconds and are made on the event loop: so the order in which things
    happen is the order of their events.
    """

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runners: dict[str, JobRunner] = {}
        self._failures: dict[str, MistifyError] = {}
        self._stopped: MistifyError | None = None
        self._news: dict[str, asyncio.Event] = {}

    def start(self, job_id: str) -> None:
        """Run a job from wherever it stands; once the server stops, the next one does so."""
        if self._stopped is not None:
            return
        self._failures.pop(job_id, None)
        task = asyncio.create_task(self._run(job_id), name=job_id)
        self._tasks[job_id] = task
        task.add_done_callback(self._forget)

    def grow(self, job_id: str, addition: Addition) -> None:
        """Let a job take up goals that were added to it in the store; one that does not run is started."""
        task, runner = self._tasks.get(job_id), self._runners.get(job_id)
        if task is None or task.done():
            self.start(job_id)
        elif runner is not None:  # without one the job is about to be read from the store
            runner.grow(addition)
        self._tell(job_id)

    def resume(self) -> None:
        """Run every job that an earlier server has not finished."""
        for job_id in self._store.jobs.unfinished():
            self.start(job_id)

    async def cancel(self, job_id: str) -> Job:
        """Stop a job for good; what is done stays. A job that has ended stays as it is."""
        # Whoever asks may hang up: what was begun is brought to its end.
        return await asyncio.shield(asyncio.create_task(self._cancel(job_id)))

    async def stop(self) -> None:
        """Stop all jobs for now; the next server resumes them."""
        while self._tasks:  # a job may be started again while others end
            await asyncio.gather(*map(self._stop, list(self._tasks)))
        # Whoever is between two events waits for none yet: it finds the reason when it looks again.
        self._stopped = MistifyError(ErrorCode.UNAVAILABLE, "the server stops; the job can be resumed")
        for job_id in list(self._news):
            self._tell(job_id)

    async def watch(self, job_id: str, after: int) -> AsyncIterator[JobEvent]:
        """Every event numbered above `after`, then new ones as they come, until the job has ended.

        Raises:
            MistifyError: NOT_FOUND, there is no such job; UNAVAILABLE, it cannot go on.
        """
        while True:
            events = self._store.jobs.events(job_id, after, _PAGE)
            for event in events:
                yield event
            if events:
                after = events[-1].sequence
                continue
            if self._store.jobs.ended(job_id):
                return
            failure = self._failures.get(job_id, self._stopped)
            if failure is not None:
                raise failure
            await self._news.setdefault(job_id, asyncio.Event()).wait()

    async def _cancel(self, job_id: str) -> Job:
        while job_id in self._tasks:  # it may be started again while it ends
            await self._stop(job_id)
        job = self._store.jobs.job(job_id)
        if not job.state.ended:
            self._runner(job).end(GoalState.CANCELLED, JobState.CANCELLED)
        return self._store.jobs.job(job_id)

    async def _stop(self, job_id: str) -> None:
        task = self._tasks.get(job_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _forget(self, task: asyncio.Task[None]) -> None:
        if self._tasks.get(task.get_name()) is task:
            del self._tasks[task.get_name()]

    async def _run(self, job_id: str) -> None:
        try:
            runner = self._runner(self._store.jobs.job(job_id))
            self._runners[job_id] = runner
            await self._run_to_its_end(runner)
        except MistifyError as error:
            _log.error("job %s cannot go on until the server is started again: %s", job_id, error)
            self._give_up(job_id, error)
        finally:
            self._runners.pop(job_id, None)

    async def _run_to_its_end(self, runner: JobRunner) -> None:
        try:
            await runner.run()
        except MistifyError:
            raise
        except Exception:
            _log.exception("a job failed")
            reason = "an error inside the server; its log has the details"
            runner.end(GoalState.FAILED, JobState.FAILED, reason)

    def _give_up(self, job_id: str, error: MistifyError) -> None:
        """Tell those who watch a job that this server does not go on with it."""
        self._failures[job_id] = error
        self._tell(job_id)

    def _runner(self, job: Job) -> JobRunner:
        log = JobLog(self._store.jobs, job, lambda: self._tell(job.id))
        return JobRunner(self._store, self._engine, log)

    def _tell(self, job_id: str) -> None:
        """Wake those who watch a job."""
        news = self._news.pop(job_id, None)
        if news is not None:
            news.set()
