"""Runs of a job's tasks, repeated while the engine or the store is unavailable."""

import logging
from collections.abc import Sequence

from tenacity import AsyncRetrying

from mistify.jobs.job import ProgressUpdate
from mistify_server.engines.base import TaskEngine
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.outcomes import outage_in
from mistify_server.jobs.step_queue import StepQueue
from mistify_server.jobs.store_writer import until_available
from mistify_server.jobs.time_left import Part
from mistify_server.tasks.results import Result
from mistify_server.tasks.tasks import Task

_logger = logging.getLogger(__name__)


class TaskRuns:
    """Runs tasks of a job, one for each call.

    Args:
        log: Receives the progress and the time of the tasks.
        engine: Runs the tasks.
        queue: The queue of the job's steps, which wait and end with it.
    """

    def __init__(self, log: JobLog, engine: TaskEngine, queue: StepQueue) -> None:
        self._log, self._engine, self._queue = log, engine, queue

    async def result_of(self, task: Task, goal_ids: Sequence[str], part: Part) -> Result:
        """Run a task and return its result; retry while the engine or the store is unavailable.

        Args:
            goal_ids: Ids of the goals that it serves; empty for the source and preparations.
            part: See `JobLog.progress_of`.
        """
        async for attempt in self.until_available():
            with attempt:
                result = await self._attempt(task, goal_ids, part)
        return result

    def until_available(self) -> AsyncRetrying:
        """Return attempts that repeat while the engine or the store is unavailable."""
        return until_available(_note_outage, self._queue.checkpoint)

    async def _attempt(self, task: Task, goal_ids: Sequence[str], part: Part) -> Result:
        """Return the result of a task.

        Raises:
            MistifyError: UNAVAILABLE or STORE_REFUSED, no task can run, or its results cannot be stored.
        """
        async with self._log.progress_of(goal_ids, part) as on_progress:
            result = await self._log.account(self._engine.run(task, on_progress))
            outage = outage_in(result)
            if outage is not None:
                on_progress(ProgressUpdate(f"waiting: {outage.message.splitlines()[0]}", 0, 0))
        if outage is not None:
            raise outage
        return result


def _note_outage(error: BaseException) -> None:
    _logger.warning("a step is waiting and will be retried: %s", error)
