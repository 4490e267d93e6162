"""The changes of a running job: all of them pass through its log, on their way to the store."""

import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from mistify.jobs.job import Goal, GoalState, Job, ProgressUpdate
from mistify_server.jobs.outcomes import failed_goal
from mistify_server.store.changes import (
    Advanced,
    Change,
    CheckpointSaved,
    GoalChanged,
    GoalsFailed,
    JobChanged,
    PreparationSaved,
    RootSaved,
)
from mistify_server.store.jobs import JobStore
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import Result, seconds_by_activity

_logger = logging.getLogger(__name__)

#: The least seconds between two recorded updates of one stage.
UPDATE_SECONDS = 0.5


class JobLog:
    """Goals and times of a running job, written to the store with every change.

    Args:
        jobs: The store.
        job: As the store has it.
        on_change: Called after every change.
        clock: Returns seconds, from any start.
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
        """The goals in the order of the configs."""
        return list(self._goals.values())

    def add(self, goals: Iterable[Goal]) -> None:
        """Take up goals that were added to the job in the store."""
        self._goals |= {goal.id: goal for goal in goals}

    def goal(self, goal_id: str) -> Goal:
        """Return a goal."""
        return self._goals[goal_id]

    def open_goals(self, goal_ids: Sequence[str]) -> list[Goal]:
        """Return those of the goals that have not ended."""
        return [self._goals[goal_id] for goal_id in goal_ids if not self._goals[goal_id].state.ended]

    def note(self, goal_ids: Sequence[str], note: str) -> None:
        """Add a note to those of the goals that have not ended, and have not got it yet."""
        goals = [goal for goal in self.open_goals(goal_ids) if note not in goal.note]
        if goals:
            self.record(
                *(
                    GoalChanged(replace(goal, note="; ".join(filter(None, (goal.note, note)))))
                    for goal in goals
                )
            )

    def record(self, *changes: Change) -> None:
        """Write changes to the store, all or none."""
        self._jobs.record(self.job_id, changes, self._clock() - self._start, self._spent)
        for change in changes:
            self._log_change(change)
            match change:
                case GoalChanged(goal):
                    self._goals[goal.id] = goal
                case GoalsFailed(goal_ids, reason):
                    failed = (failed_goal(self._goals[goal_id], reason) for goal_id in goal_ids)
                    self._goals |= {goal.id: goal for goal in failed}
        self._on_change()

    def _log_change(self, change: Change) -> None:
        """Log a change that whoever runs the server wants to hear of."""
        about: dict[str, object] = {"job": self.job_id}
        match change:
            case JobChanged(state, reason):
                _logger.info("the job is %s%s", state.value, _because(reason), extra=about)
            case RootSaved(batch, _):
                _logger.info("the source is prepared", extra={**about, "batch": batch})
            case PreparationSaved(batch, algorithm, prepared):
                about |= {"batch": batch, "steps": prepared.steps, "seconds": round(prepared.seconds, 1)}
                _logger.info("%s has prepared", algorithm, extra=about)
            case CheckpointSaved(batch, node, result, _):
                about |= {
                    "edge": f"{batch}/{node}",
                    "steps": result.steps,
                    "seconds": round(result.seconds, 1),
                }
                _logger.info("the edge is adapted", extra=about)
            case GoalChanged(goal) if goal.state is not self._goals[goal.id].state:
                _logger.info(
                    "the goal is %s%s",
                    goal.state.value,
                    _because(goal.reason),
                    extra={**about, "goal": goal.id},
                )
            case GoalsFailed([first, *others], reason):
                about |= {"goal": first, "goals": 1 + len(others)}
                _logger.warning("goals have failed%s", _because(reason), extra=about)

    async def account(self, running: Awaitable[Result]) -> Result:
        """Await the result of a task that begins to run now, and account for its time in the next record."""
        start = self._clock()
        result = await running
        elapsed = self._clock() - start
        for activity, seconds in seconds_by_activity(result, elapsed).items():
            self._spent[activity] += seconds
        return result

    def progress_of(self, goal_ids: Sequence[str]) -> OnProgress:
        """Return a callback that records the progress of a task.

        The goals are running from the first update on. Updates that follow each other too closely are left
        out, unless they begin a stage or bring a new accuracy.

        Args:
            goal_ids: The goals that the task serves; empty for those of the source and of preparations.
        """
        stage, recorded_at = None, 0.0

        def on_progress(update: ProgressUpdate) -> None:
            nonlocal stage, recorded_at
            now = self._clock()
            if update.stage == stage and update.accuracy is None and now - recorded_at < UPDATE_SECONDS:
                return
            stage, recorded_at = update.stage, now
            goals = self.open_goals(goal_ids)
            begun = [
                GoalChanged(replace(goal, state=GoalState.RUNNING))
                for goal in goals
                if goal.state is not GoalState.RUNNING
            ]
            subjects = [goal.id for goal in goals] if goal_ids else [None]
            self.record(*begun, *(Advanced(subject, update) for subject in subjects))

        return on_progress


def _because(reason: str) -> str:
    """Return a reason as the end of a sentence; empty where there is none."""
    return f": {reason.splitlines()[0]}" if reason else ""
