"""One job, run to its end (paper 4.3)."""

import logging
from collections.abc import Callable
from dataclasses import replace

from mistify.errors import MistifyError
from mistify.jobs.job import GoalState, Job, JobState
from mistify_server.engines.base import Engine
from mistify_server.jobs.adaptation import CollectiveAdaptation
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.step_queue import StepQueue
from mistify_server.store.changes import Addition, GoalChanged, JobChanged
from mistify_server.store.directory import Store

_log = logging.getLogger(__name__)


class JobRunner:
    """Runs a job from wherever it stands in the store.

    Args:
        store: Has the job.
        engine: Runs its tasks.
        job: As the store has it.
        on_change: Called after every change of the job.
    """

    def __init__(self, store: Store, engine: Engine, job: Job, on_change: Callable[[], None]) -> None:
        self._store = store
        self._engine = engine
        self._log = JobLog(store.jobs, job, on_change)
        self._queue = StepQueue()
        self._adaptations: dict[int, CollectiveAdaptation] = {}

    async def run(self) -> None:
        """Adapt all batches of the job until every goal has ended; an error of the program fails the job.

        Raises:
            MistifyError: The store failed, or the engine. The job can be run again from where it stands.
        """
        try:
            await self._adapt()
        except MistifyError:
            raise
        except Exception:
            _log.exception("the job %s failed", self._log.job_id)
            reason = "an error inside the server; its log has the details"
            self.end(GoalState.FAILED, JobState.FAILED, reason)

    def grow(self, addition: Addition) -> None:
        """Take up goals that were added to the job in the store while it runs."""
        self._log.add(addition.goals)
        for plan in addition.plans:
            self._adaptations[plan.number].grow(plan)

    def end(self, goal_state: GoalState, job_state: JobState, reason: str = "") -> None:
        """End a job that does not run; goals that have ended stay as they are.

        Args:
            goal_state: Of the other goals.
            job_state: Of the job.
            reason: Why, for the job and these goals.
        """
        open_goals = self._log.open_goals([goal.id for goal in self._log.goals])
        ended = [GoalChanged(replace(goal, state=goal_state, reason=reason)) for goal in open_goals]
        self._log.record(*ended, JobChanged(job_state, reason))

    async def _adapt(self) -> None:
        self._log.record(JobChanged(JobState.RUNNING))
        for state in self._store.jobs.batches(self._log.job_id):
            adaptation = CollectiveAdaptation(
                state, self._log, self._engine, self._store.artifacts, self._queue
            )
            self._adaptations[state.plan.number] = adaptation
            adaptation.queue_steps()
        await self._queue.run(self._engine.slots)
        # Last, when nothing else needs a worker: goals may be added meanwhile.
        while any(adaptation.queue_reference() for adaptation in self._adaptations.values()):
            await self._queue.run(self._engine.slots)
        goals = self._log.goals
        if all(goal.state is GoalState.FAILED for goal in goals):
            self._log.record(JobChanged(JobState.FAILED, goals[0].reason))
        else:
            self._log.record(JobChanged(JobState.DONE))
