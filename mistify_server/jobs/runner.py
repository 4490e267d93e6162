"""Driving one job to its end (paper 4.3)."""

from dataclasses import replace

from mistify.jobs.job import GoalState, JobState
from mistify_server.engines.base import Engine
from mistify_server.jobs.adaptation import CollectiveAdaptation
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.step_queue import StepQueue
from mistify_server.store.changes import Addition, GoalChanged, JobChanged
from mistify_server.store.directory import Store


class JobRunner:
    """Runs a job from wherever it stands in the store."""

    def __init__(self, store: Store, engine: Engine, log: JobLog) -> None:
        self._store = store
        self._engine = engine
        self._log = log
        self._queue = StepQueue()
        self._adaptations: dict[int, CollectiveAdaptation] = {}

    async def run(self) -> None:
        """Adapt all batches of the job; return when every goal has ended.

        Raises:
            MistifyError: the store failed, or the engine. The job can be run again from where it stands.
        """
        self._log.record(JobChanged(JobState.RUNNING))
        for state in self._store.jobs.batches(self._log.job_id):
            adaptation = CollectiveAdaptation(
                state, self._log, self._engine, self._store.artifacts, self._queue
            )
            self._adaptations[state.plan.number] = adaptation
            adaptation.begin()
        await self._queue.run(self._engine.slots)
        goals = self._log.goals
        if all(goal.state is GoalState.FAILED for goal in goals):
            self._log.record(JobChanged(JobState.FAILED, goals[0].reason))
        else:
            self._log.record(JobChanged(JobState.DONE))

    def grow(self, addition: Addition) -> None:
        """Take up goals that were added to the job in the store while it runs."""
        self._log.add(addition.goals)
        for plan in addition.plans:
            self._adaptations[plan.number].grow(plan)

    def end(self, goal_state: GoalState, job_state: JobState, reason: str = "") -> None:
        """End a job that does not run: what is not done is marked so, what is done stays."""
        open_goals = self._log.open_goals([goal.id for goal in self._log.goals])
        changed = [replace(goal, state=goal_state, reason=reason) for goal in open_goals]
        self._log.record(*map(GoalChanged, changed), JobChanged(job_state, reason))
