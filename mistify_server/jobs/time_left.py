"""The time left of a running job: how much of its expected time has passed, and how much remains."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal, NamedTuple, TypeAlias

from mistify.jobs.job import Goal, ProgressUpdate
from mistify_server.planning.forecast.batch_time import OVERHEAD_STEPS, batch_seconds
from mistify_server.store.changes import (
    Change,
    CheckpointSaved,
    GoalChanged,
    GoalsFailed,
    PreparationSaved,
    ReferenceSaved,
    RootSaved,
)
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan

#: A kind of work. Its parts have a common pace: their actual time relative to the planned one.
Work: TypeAlias = Literal["source", "preparation", "adaptation", "packaging"]

#: How much the expected pace of each kind of work counts, in parts of mean size.
_TRUST: Final[Mapping[Work, float]] = {
    "source": 0.1,
    "preparation": 0.5,
    "adaptation": 0.25,
    "packaging": 1.0,
}

#: The share of a part's steps whose time tells as much about the rest as the other parts do.
_KNOWN_FROM: Final = 0.1

#: Seconds without waiting for other jobs that are expected before any are known.
_UNDISTURBED: Final = 10.0


class Part(NamedTuple):
    """A part of a job's work.

    Attributes:
        name: Index of the node, name of the preparation, or id of the goal to package; empty for the source,
            which is measured like a package at the end.
    """

    batch: int
    work: Work
    name: int | str = ""


class TimeLeft(NamedTuple):
    """The share of a job's expected time that has passed, and the expected seconds until it ends."""

    share: float
    seconds_left: float


class _Steps(NamedTuple):
    """The planned seconds of a training step, and the steps that take as long as everything else."""

    seconds: float
    overhead: int


@dataclass
class _Timed:
    """The training steps of a part in its current stage: the first and the latest ones with known times.

    Attributes:
        before: Seconds per step in the stage before; 0 if there was none.
        since: When `first` steps were done.
        at: When `step` of `total` steps were done.
    """

    stage: str
    before: float
    since: float
    first: int
    at: float
    step: int
    total: int

    @property
    def weight(self) -> float:
        """How much the time of these steps tells about the rest, up to 1."""
        own = self._weight_of_stage
        return own + 0.5 * (1 - own) if self.before else own

    @property
    def seconds(self) -> float:
        """Seconds per step; 0 while unknown."""
        timed = self.step - self.first
        own = (self.at - self.since) / timed if timed else self.before
        weight = self._weight_of_stage if self.before else 1.0
        return weight * own + (1 - weight) * self.before

    @property
    def _weight_of_stage(self) -> float:
        timed = self.step - self.first
        return timed / (timed + _KNOWN_FROM * self.total)

    def rest(self, elapsed: float) -> float:
        """Return the seconds that the other steps take."""
        return max(0.0, (self.total - self.step) * self.seconds - (elapsed - self.at))


class TimeLeftEstimator:
    """Estimates the end of a job from its plan and from the times of its parts so far.

    Each kind of work is expected to go on at its own pace, and a network in training with the time of its
    latest steps. Until parts have been timed, networks are adapted at the pace of the source's training
    steps. A part that takes longer than expected counts as if it had just ended.

    Args:
        states: The job's batches in their state in the store.
        goals: The job's goals.
        slots: Number of tasks that run at the same time.
        elapsed: Seconds that the job has been running.
    """

    def __init__(
        self, states: Sequence[BatchState], goals: Iterable[Goal], slots: int, elapsed: float = 0.0
    ) -> None:
        self._slots = slots
        self._plans: dict[int, BatchPlan] = {}
        self._planned: dict[Part, float] = {}
        self._left: dict[Part, float] = {}
        self._steps: dict[Part, _Steps] = {}
        self._mean: dict[Work, float] = {}
        self._node_of: dict[str, Part] = {}
        self._open: dict[Part, set[str]] = {}
        self._packaged: set[int] = set()
        # Planned and actual seconds of finished parts, by kind of work.
        self._worked: dict[Work, float] = defaultdict(float)
        self._taken: dict[Work, float] = defaultdict(float)
        self._step_pace: float | None = None
        # When parts in progress have begun, those that have reported steps, and the time of earlier attempts.
        self._begun: dict[Part, float] = {}
        self._timed: dict[Part, _Timed] = {}
        self._spent: dict[Part, float] = defaultdict(float)
        self._idle, self._free_since = 0.0, elapsed
        self._share = 0.0
        self.grow(state.plan for state in states)
        for state in states:
            self._resume(state)
        for goal in goals:
            if goal.state.ended:
                self._end(goal.id, packaged=bool(goal.files))

    def grow(self, plans: Iterable[BatchPlan]) -> None:
        """Replace plans by those with added goals."""
        for plan in plans:
            self._plans[plan.number] = plan
            for node in plan.nodes:
                self._add_node(plan, node)
            for part, seconds in _planned_parts(plan):
                if part not in self._planned:
                    self._planned[part] = self._left[part] = seconds
        for work in _TRUST:
            own = [seconds for part, seconds in self._planned.items() if part.work == work]
            self._mean[work] = fmean(own) if own else 0.0
        self._share = 0.0

    def advance(self, part: Part, update: ProgressUpdate, at: float) -> None:
        """Take the progress of a part into account.

        Args:
            at: Seconds that the job has been running.
        """
        if part not in self._begun:
            if not self._begun:
                self._idle += at - self._free_since
            self._begun[part] = at
        if update.total_steps <= 1 or part.work == "packaging" or part not in self._planned:
            return
        steps = self._steps.get(part)
        overhead = OVERHEAD_STEPS if steps is None else steps.overhead
        total = overhead + update.total_steps
        if steps is not None:  # only the worker knows how often a network has to be tuned
            self._planned[part] = self._left[part] = total * steps.seconds
        if update.step:
            self._left[part] = max(0.0, 1 - (overhead + update.step) / total) * self._planned[part]
            self._time(part, update, at)
            timed = self._timed[part]
            if part.work == "source" and timed.seconds and self._planned[part]:
                self._step_pace = timed.seconds * total / self._planned[part]

    def stop(self, part: Part, at: float) -> None:
        """Take into account that the task of a part has ended, with or without a result."""
        begun = self._begun.pop(part, None)
        self._timed.pop(part, None)
        if begun is None:
            return
        self._spent[part] += at - begun
        if not self._begun:
            self._free_since = at

    def apply(self, change: Change) -> None:
        """Take a finished step into account."""
        match change:
            case RootSaved(batch, result):
                self._finish(Part(batch, "source"), result.seconds)
            case PreparationSaved(batch, name, prepared):
                self._finish(Part(batch, "preparation", name), prepared.seconds)
            case CheckpointSaved(batch, node, adapted, _):
                self._finish(Part(batch, "adaptation", node), adapted.seconds)
            case ReferenceSaved(batch, reference):
                self._finish(Part(batch, "packaging"), reference.seconds)
            case GoalChanged(goal) if goal.state.ended:
                self._end(goal.id, packaged=bool(goal.files))
            case GoalsFailed(goal_ids, _):
                for goal_id in goal_ids:
                    self._end(goal_id, packaged=False)

    def estimate(self, elapsed: float) -> TimeLeft | None:
        """Return the time that has passed and the time left; None if the plan has no expected times.

        Args:
            elapsed: Seconds that the job has been running.
        """
        if not any(self._mean.values()):
            return None
        paces = self._paces(elapsed)
        left = sum(self._seconds_left(plan, paces) for plan in self._plans.values())
        for part, begun in self._begun.items():
            expected, timed = paces[part.work] * self._left.get(part, 0.0), self._timed.get(part)
            if timed is None:
                left -= min(elapsed - begun, expected)
            else:
                left += timed.weight * (timed.rest(elapsed) - expected)
        left = max(0.0, left)
        idle = self._idle + (0.0 if self._begun else elapsed - self._free_since)
        active = max(0.0, elapsed - idle)
        self._share = max(self._share, active / (active + left) if left else 1.0)
        return TimeLeft(self._share, left * (elapsed + _UNDISTURBED) / (active + _UNDISTURBED))

    def _time(self, part: Part, update: ProgressUpdate, at: float) -> None:
        """Take the time of training steps into account; steps of another stage take another time."""
        timed = self._timed.get(part)
        if timed is None or update.step < timed.step or update.stage != timed.stage:
            before, steps = timed.seconds if timed else 0.0, update.total_steps
            self._timed[part] = _Timed(update.stage, before, at, update.step, at, update.step, steps)
        else:
            timed.at, timed.step, timed.total = at, update.step, max(update.step, update.total_steps)

    def _add_node(self, plan: BatchPlan, node: NodePlan) -> None:
        part = Part(plan.number, "adaptation", node.index)
        profile = plan.estimates.profiles.get(node.algorithm) if plan.estimates else None
        overhead = profile.edge_overhead if profile else 0
        if node.steps:
            self._steps[part] = _Steps(node.seconds / (node.steps + overhead), overhead)
        known = {goal_id for goal_id in node.goals if goal_id in self._node_of}
        self._open.setdefault(part, set()).update(set(node.goals) - known)
        self._node_of.update(dict.fromkeys(node.goals, part))

    def _resume(self, state: BatchState) -> None:
        """Finish the parts that have a result in the store."""
        number = state.plan.number
        if state.root is not None:
            self._finish(Part(number, "source"), state.root.seconds)
        for name, prepared in state.preparations.items():
            self._finish(Part(number, "preparation", name), prepared.seconds)
        for index, adapted in state.checkpoints.items():
            self._finish(Part(number, "adaptation", index), adapted.seconds)
        if state.reference is not None:
            self._finish(Part(number, "packaging"), state.reference.seconds)

    def _finish(self, part: Part, seconds: float) -> None:
        """Finish a part after a time, which is 0 if it is unknown."""
        if part not in self._left:
            return
        self._left[part] = 0.0
        if seconds and self._planned[part]:
            self._worked[part.work] += self._planned[part]
            self._taken[part.work] += seconds

    def _end(self, goal_id: str, *, packaged: bool) -> None:
        """Take into account that a goal has ended, which leaves nothing to do for it."""
        node = self._node_of.get(goal_id)
        if node is None or goal_id not in self._open[node]:
            return
        part = Part(node.batch, "packaging", goal_id)
        self._finish(part, self._spent[part] if packaged else 0.0)
        if packaged:
            self._packaged.add(node.batch)
        self._open[node].remove(goal_id)
        if not self._open[node]:
            self._left[node] = 0.0

    def _paces(self, elapsed: float) -> dict[Work, float]:
        source = self._pace("source", 1.0, elapsed)
        preparation = self._pace("preparation", source, elapsed)
        return {
            "source": source,
            "preparation": preparation,
            "adaptation": self._pace("adaptation", self._step_pace or preparation, elapsed),
            "packaging": self._pace("packaging", 1.0, elapsed),
        }

    def _pace(self, work: Work, expected: float, elapsed: float) -> float:
        """Return the pace of a kind of work, which is the expected one until some of it has been timed."""
        trust = _TRUST[work] * self._mean[work]
        worked, taken = self._worked[work] + trust, self._taken[work] + expected * trust
        own = (part for part in self._begun if part.work == work and self._planned.get(part))
        for part in own:
            planned, seconds = self._planned[part], elapsed - self._begun[part] + self._spent[part]
            timed = self._timed.get(part)
            if timed is not None and timed.weight:
                worked += timed.weight * planned
                taken += timed.weight * (seconds + timed.rest(elapsed))
            elif seconds > expected * planned:
                worked += planned
                taken += seconds
        return taken / worked if worked else expected

    def _seconds_left(self, plan: BatchPlan, paces: Mapping[Work, float]) -> float:
        """Return the expected seconds of the rest of a batch."""
        number, left = plan.number, self._left
        of_nodes = {node.index: self._open[Part(number, "adaptation", node.index)] for node in plan.nodes}
        reference = paces["packaging"] * left[Part(number, "packaging")]
        if not any(of_nodes.values()):
            return reference if number in self._packaged else 0.0
        adapting, packaging = paces["adaptation"], paces["packaging"]
        nodes = {
            index: adapting * left[Part(number, "adaptation", index)]
            + packaging * sum(left[Part(number, "packaging", goal_id)] for goal_id in goals)
            for index, goals in of_nodes.items()
        }
        preparing = {
            name: paces["preparation"] * left[Part(number, "preparation", name)]
            for name in plan.preparing_seconds
        }
        source = paces["source"] * left[Part(number, "source")]
        return batch_seconds(plan, source, preparing, nodes, self._slots) + reference


def _planned_parts(plan: BatchPlan) -> Iterator[tuple[Part, float]]:
    """Yield the parts of a batch with their planned seconds."""
    number = plan.number
    yield Part(number, "source"), plan.source_seconds
    for name, seconds in plan.preparing_seconds.items():
        yield Part(number, "preparation", name), seconds
    packages = []
    for node in plan.nodes:
        packages.append(node.packaging_seconds / len(node.goals))
        yield Part(number, "adaptation", node.index), node.seconds
        yield from ((Part(number, "packaging", goal_id), packages[-1]) for goal_id in node.goals)
    # Packages with branches take longer, the source has none.
    yield Part(number, "packaging"), min(packages, default=0.0)
