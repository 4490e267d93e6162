"""Two jobs side by side: the goals with equal ids, and how their packages differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

from mistify.costs.budget import LATENCY, SIZE, size_axis
from mistify.jobs.formatting import amount, duration, quality
from mistify.jobs.job import Goal, Job
from mistify.jobs.report import latency_of, measured_latency

#: Relative changes below this are within the noise of measurements.
_SAME = 0.02


@dataclass(frozen=True)
class Change:
    """A figure of a goal in both jobs.

    Attributes:
        change: The difference or the ratio; empty if one of the figures is unknown.
        better: Whether the second one is clearly better (True) or worse (False); None if neither.
    """

    before: str
    after: str
    change: str = ""
    better: bool | None = None


@dataclass(frozen=True)
class ComparedGoal:
    """A goal in both jobs; None in a job that does not have it.

    Attributes:
        changes: Score, size, latency and time; empty unless both jobs have the goal.
    """

    id: str
    before: Goal | None
    after: Goal | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class JobComparison:
    """Two jobs and their goals, in the order of the first one.

    Attributes:
        mean_points: Mean change of the goals' scores in points, over goals that both met or missed with a
            score that is a share; None if there are none.
    """

    before: Job
    after: Job
    goals: tuple[ComparedGoal, ...]
    mean_points: float | None


def compare_jobs(before: Job, after: Job) -> JobComparison:
    """Return the comparison of two jobs."""
    ours, others = ({goal.id: goal for goal in job.goals} for job in (before, after))
    goals = tuple(
        ComparedGoal(id, ours.get(id), others.get(id), _changes(ours.get(id), others.get(id)))
        for id in dict.fromkeys([*ours, *others])
    )
    points = [
        100 * (others[id].accuracy - goal.accuracy)  # type: ignore[operator]
        for id, goal in ours.items()
        if id in others and _comparable(goal, others[id])
    ]
    return JobComparison(before, after, goals, mean(points) if points else None)


def _comparable(goal: Goal, other: Goal) -> bool:
    """Check whether two goals have scores by the same metric, which is a share."""
    known = goal.accuracy is not None and other.accuracy is not None
    return known and goal.metric is other.metric and goal.metric.is_share


def _changes(goal: Goal | None, other: Goal | None) -> tuple[Change, ...]:
    if goal is None or other is None:
        return ()
    return (_score(goal, other), *_costs(goal, other))


def _score(goal: Goal, other: Goal) -> Change:
    shown = quality(goal.metric, goal.accuracy), quality(other.metric, other.accuracy)
    if goal.accuracy is None or other.accuracy is None or goal.metric is not other.metric:
        return Change(*shown)
    if goal.metric.is_share:
        points = round(100 * (other.accuracy - goal.accuracy), 1) + 0.0  # no -0.0
        return Change(*shown, f"{points:+.1f}", points > 0 if points else None)
    return _ratio(*shown, goal.accuracy, other.accuracy)


def _costs(goal: Goal, other: Goal) -> Iterator[Change]:
    sizes = [each.achieved.get(size_axis(each.spec.quantization.precision)) for each in (goal, other)]
    yield _ratio(amount(SIZE, sizes[0]), amount(SIZE, sizes[1]), *sizes)
    latencies = [_latency(each) for each in (goal, other)]
    yield _ratio(amount(LATENCY, latencies[0]), amount(LATENCY, latencies[1]), *latencies)
    yield _ratio(duration(goal.seconds), duration(other.seconds), goal.seconds, other.seconds)


def _latency(goal: Goal) -> float | None:
    """Return the latency of a goal's package, the measured one if it is known."""
    measured = measured_latency(goal, goal)
    return latency_of(goal, goal.achieved) if measured is None else measured


def _ratio(shown: str, other_shown: str, value: float | None, other: float | None) -> Change:
    """Return the change of a figure of which less is better."""
    if not value or other is None:
        return Change(shown, other_shown)
    ratio = other / value
    better = None if abs(ratio - 1) < _SAME else ratio < 1
    return Change(shown, other_shown, f"{ratio:.2f}x", better)
