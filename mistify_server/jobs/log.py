"""A job while it runs: how it stands, where its time goes, and the one way in which it changes."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from mistify.jobs.job import Goal, GoalState, Job, ProgressUpdate
from mistify_server.engines.base import OnProgress
from mistify_server.store.changes import Advanced, Change, GoalChanged
from mistify_server.store.jobs import JobStore
from mistify_server.tasks.messages import TaskProgress
from mistify_server.tasks.results import Result, TaskFailure

#: Updates of one stage are told no more often than this, in seconds.
TELL_SECONDS = 0.5


class JobLog:
    """Puts every change of a job into the store, then tells those who watch the job.

    Args:
        jobs: the store.
        job: as it stands there.
        on_change: called after every change.
        clock: in seconds, from any start.
    """

    def __init__(
        self,
        jobs: JobStore,
        job: Job,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job_id = job.id
        self._jobs = jobs
        self._goals = {goal.id: goal for goal in job.goals}
        self._on_change = on_change
        self._clock = clock
        self._start = clock() - job.seconds
        self._spent = defaultdict(float, job.spent)

    @property
    def goals(self) -> list[Goal]:
        """The goals as they stand, in the order of the configs."""
        return list(self._goals.values())

    def add(self, goals: Iterable[Goal]) -> None:
        """Take up goals that were added to the job in the store."""
        self._goals |= {goal.id: goal for goal in goals}

    def goal(self, goal_id: str) -> Goal:
        """A goal as it stands."""
        return self._goals[goal_id]

    def open_goals(self, goal_ids: Sequence[str]) -> list[Goal]:
        """Those of some goals that have not ended."""
        return [self._goals[goal_id] for goal_id in goal_ids if not self._goals[goal_id].state.ended]

    def record(self, *changes: Change) -> None:
        """Make changes, all or none."""
        self._jobs.record(self.job_id, changes, self._clock() - self._start, self._spent)
        for change in changes:
            if isinstance(change, GoalChanged):
                self._goals[change.goal.id] = change.goal
        self._on_change()

    async def booked(self, running: Awaitable[Result]) -> Result:
        """The result of a task that begins to run now; where its time went is in the next record.

        What its worker did not spend on it is booked as waiting: for a free worker, for one to start, for
        attempts whose worker died, for the wire. The time of a task that failed is booked as such.
        """
        start = self._clock()
        result = await running
        taken = self._clock() - start
        if isinstance(result, TaskFailure):
            spent = {"failed": taken}
        else:
            # Two clocks may disagree a little.
            spent = {**result.spent, "waiting": max(0.0, taken - result.seconds)}
        for activity, seconds in spent.items():
            self._spent[activity] += seconds
        return result

    def follow(self, goal_ids: Sequence[str]) -> OnProgress:
        """What records the progress of a task that serves some goals, or the source where there are none.

        The goals are running from the first progress on. Updates that follow each other too closely
        are left out, unless they begin a stage or bring a new accuracy.
        """
        told_stage, told_at = None, 0.0

        def on_progress(progress: TaskProgress) -> None:
            nonlocal told_stage, told_at
            now = self._clock()
            if progress.stage == told_stage and progress.accuracy is None and now - told_at < TELL_SECONDS:
                return
            told_stage, told_at = progress.stage, now
            update = ProgressUpdate(
                progress.stage,
                progress.step,
                progress.total_steps,
                progress.costs,
                progress.accuracy,
                progress.metric,
            )
            goals = self.open_goals(goal_ids)
            begun = [
                GoalChanged(replace(goal, state=GoalState.RUNNING))
                for goal in goals
                if goal.state is not GoalState.RUNNING
            ]
            told = [goal.id for goal in goals] if goal_ids else [None]
            self.record(*begun, *(Advanced(goal_id, update) for goal_id in told))

        return on_progress
