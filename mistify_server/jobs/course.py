"""The course of a running job: how much of its planned work is done, and when it is expected to end."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from mistify.jobs.job import Goal, ProgressUpdate
from mistify_server.planning.forecast.course import batch_seconds
from mistify_server.store.changes import (
    Change,
    CheckpointSaved,
    GoalChanged,
    GoalsFailed,
    PreparationSaved,
    RootSaved,
)
from mistify_server.store.plans import BatchPlan, BatchState

#: The plan counts as much as this share of the job's work at the planned pace.
_TRUST: Final = 0.25


class Part(NamedTuple):
    """A part of a job's work: a node's adaptation, a preparation by name, or a source if both are None."""

    batch: int
    node: int | None = None
    preparation: str | None = None


class Estimated(NamedTuple):
    """The share of a job's expected work that is done, and the expected seconds until it ends."""

    share: float
    seconds_left: float


class Course:
    """Estimates the end of a job from its plan, corrected by the pace so far.

    Args:
        states: The job's batches in their state in the store.
        goals: The job's goals.
        slots: Number of tasks that run at the same time.
    """

    def __init__(self, states: Iterable[BatchState], goals: Sequence[Goal], slots: int) -> None:
        self._slots = slots
        self._plans: dict[int, BatchPlan] = {}
        self._ended = {goal.id for goal in goals if goal.state.ended}
        self._done: dict[Part, float] = {}
        for state in states:
            number = state.plan.number
            self._plans[number] = state.plan
            finished = [Part(number)] if state.root is not None else []
            finished += [Part(number, node) for node in state.checkpoints]
            finished += [Part(number, preparation=name) for name in state.preparations]
            self._done |= dict.fromkeys(finished, 1.0)
        # Large jobs have thousands of nodes, and report progress several times a second.
        self._whole = self._whole_seconds()

    def grow(self, plans: Iterable[BatchPlan]) -> None:
        """Replace plans by those with added goals."""
        self._plans |= {plan.number: plan for plan in plans}
        self._whole = self._whole_seconds()

    def advance(self, part: Part, update: ProgressUpdate) -> None:
        """Take the progress of a part into account."""
        if update.total_steps > 1:
            self._done[part] = min(update.step / update.total_steps, 1.0)

    def apply(self, change: Change) -> None:
        """Take a finished step into account."""
        match change:
            case RootSaved(batch, _):
                self._done[Part(batch)] = 1.0
            case PreparationSaved(batch, name, _):
                self._done[Part(batch, preparation=name)] = 1.0
            case CheckpointSaved(batch, node, _, _):
                self._done[Part(batch, node)] = 1.0
            case GoalChanged(goal) if goal.state.ended:
                self._ended.add(goal.id)
            case GoalsFailed(goal_ids, _):
                self._ended |= set(goal_ids)

    def estimate(self, elapsed: float) -> Estimated | None:
        """Return the work done and the time left; None if the plan has no expected times.

        Args:
            elapsed: Seconds that the job has been running.
        """
        whole = self._whole
        if not whole:
            return None
        left = sum(self._seconds(plan, self._done, self._ended) for plan in self._plans.values())
        pace = (elapsed + _TRUST * whole) / (whole - left + _TRUST * whole)
        return Estimated(1 - left / whole, pace * left)

    def _whole_seconds(self) -> float:
        return sum(self._seconds(plan, done={}, ended=()) for plan in self._plans.values())

    def _seconds(self, plan: BatchPlan, done: dict[Part, float], ended: Collection[str]) -> float:
        """Return the planned seconds of a batch without the parts that are done."""
        nodes = {}
        for node in plan.nodes:
            waiting = sum(goal_id not in ended for goal_id in node.goals) / len(node.goals)
            adapting = 1 - done.get(Part(plan.number, node.index), 0.0) if waiting else 0.0
            nodes[node.index] = adapting * node.seconds + waiting * node.packaging_seconds
        preparing = {
            name: (1 - done.get(Part(plan.number, preparation=name), 0.0)) * seconds
            for name, seconds in plan.preparing_seconds.items()
        }
        if not any(nodes.values()):
            return 0.0
        source = (1 - done.get(Part(plan.number), 0.0)) * plan.source_seconds
        return batch_seconds(plan, source, preparing, nodes, self._slots)
