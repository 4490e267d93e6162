"""The goals of a job that are not met, the worst first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mistify.config.data.targets import OVERALL
from mistify.costs.formats import AxisFormat
from mistify.jobs.formatting import quality
from mistify.jobs.job import Goal, GoalState, Job
from mistify_server.web.pages.limit_use import limit_uses

#: Maximum number of goals that are named.
_MOST: Final = 3


@dataclass(frozen=True)
class MissedGoal:
    """A goal that is not met, and by how much it misses its limits or targets, for people."""

    id: str
    by: str


@dataclass(frozen=True)
class MissedGoals:
    """The worst goals that are not met, and the number of others."""

    worst: Sequence[MissedGoal]
    others: int


def missed_goals(job: Job) -> MissedGoals:
    """Return the missed goals of a job: those that failed, then the one furthest from its limit or target."""
    missed = [goal for goal in job.goals if goal.state in (GoalState.UNMET, GoalState.FAILED)]
    ranked = sorted(missed, key=lambda goal: _excess(goal, job.formats), reverse=True)
    worst = [MissedGoal(goal.id, _shortfall(goal, job.formats)) for goal in ranked[:_MOST]]
    return MissedGoals(worst, max(0, len(missed) - _MOST))


def _excess(goal: Goal, formats: Sequence[AxisFormat]) -> tuple[bool, float]:
    """Return how bad a missed goal is: whether it failed, and its largest relative excess."""
    shares = [use.share - 1 for use in limit_uses(goal, formats) if use.share is not None and use.is_exceeded]
    distances = [abs(reached - target) / (abs(target) or 1.0) for _, reached, target in _missed_targets(goal)]
    return goal.state is GoalState.FAILED, max([*shares, *distances], default=0.0)


def _shortfall(goal: Goal, formats: Sequence[AxisFormat]) -> str:
    if goal.state is GoalState.FAILED:
        return "failed"
    parts = [
        f"{_percentage(use.share - 1)} over its limit on {use.axis}"
        for use in limit_uses(goal, formats)
        if use.share is not None and use.is_exceeded
    ]
    parts += [shown for shown, _, _ in _missed_targets(goal)]
    return ", ".join(parts) or "not met"


def _missed_targets(goal: Goal) -> Iterator[tuple[str, float, float]]:
    """Yield a text, the score and the target for each missed target of a goal."""
    scores = {score.output: score.value for score in goal.output_scores}
    if goal.accuracy is not None:
        scores[OVERALL] = goal.accuracy
    for target in goal.spec.targets:
        reached = scores.get(target.output)
        if reached is not None and target.metric.better(target.value, reached):
            named = f"{target.output}: " if target.output != OVERALL else ""
            figures = quality(target.metric, reached), quality(target.metric, target.value)
            yield f"{named}{target.metric.value} {figures[0]} instead of {figures[1]}", reached, target.value


def _percentage(share: float) -> str:
    # Goals that miss their limits do so by little: without a decimal, the worst would look like the others.
    return "less than 0.1%" if share < 0.0005 else f"{share:.1%}" if share < 0.095 else f"{share:.0%}"
