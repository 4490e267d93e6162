"""The default policy: the most accurate branch that is predicted to keep to the targets."""

from collections.abc import Iterable
from typing import Final

from pydantic import Field

from mistify.parsing.quantities import format_time
from mistify.parsing.validation import Settings
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.sensing.costs import BranchCosts

#: A smaller share of free processor time counts as this one, so that the predicted slowdown stays bounded.
_LEAST_CPU: Final = 0.05


class PredictiveParams(Settings):
    """Settings of the predictive policy.

    Attributes:
        hysteresis: margin below the target's latency, as a share of it, that a better branch has to keep. On
            the way down, a branch with half this margin is preferred, if there is one.
        dwell: seconds for which a better branch has to keep the margin without a break, and for which the
            present branch has to have run, before the better one takes over. A branch that exceeds a target
            is left at once.
    """

    hysteresis: float = Field(default=0.1, ge=0, lt=1, description="a share from 0 to 1", examples=[0.1])
    dwell: Seconds = Field(default=1.0, description='a time such as "1s"', examples=["1s"])


class PredictivePolicy(Policy):
    """Policy that predicts latencies as the expected ones times the measured ratio (paper 6).

    It switches down at once, but up only to a branch that has kept a margin in every decision for a while.
    Noise around the target therefore costs one switch down, and no swinging between branches.
    """

    params_class = PredictiveParams

    def __init__(self, params: PredictiveParams) -> None:
        """Keep the settings."""
        self._params = params
        self._clear_since: dict[int, float] = {}

    def decide(self, situation: Situation) -> Decision:
        """Choose the branch that runs from now on, as `Policy.decide` describes."""
        options = _Options(situation)
        steadily_clear = self._steadily_clear(options, situation.since, situation.now)
        if not options.within(situation.branch):
            return options.decision(self._way_down(options))
        return options.decision(options.best([situation.branch, *steadily_clear]))

    def _steadily_clear(self, options: "_Options", since: float, now: float) -> list[int]:
        """Return the branches that have kept the margin for the dwell, if the present one has run as long."""
        clear = options.all_within(self._params.hysteresis)
        self._clear_since = {branch: self._clear_since.get(branch, now) for branch in clear}
        latest = now - self._params.dwell
        return [branch for branch in clear if max(since, self._clear_since[branch]) <= latest]

    def _way_down(self, options: "_Options") -> int:
        """Return the best branch within the targets, with a margin if possible, or else the fastest."""
        for margin in (self._params.hysteresis / 2, 0.0):
            if within := options.all_within(margin):
                return options.best(within)
        return options.fastest


class _Options:
    """The branches of a situation, with their predicted latencies."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._ratio = situation.ratio * _cpu_lost(situation)

    def within(self, branch: int, margin: float = 0.0) -> bool:
        """Return True if a branch stays within the limits, its latency by a margin (a share of the limit)."""
        costs, targets = self._situation.branches[branch], self._situation.targets
        if targets.latency is not None and self._predicted(costs) > targets.latency * (1 - margin):
            return False
        return targets.memory is None or costs.memory_bytes is None or costs.memory_bytes <= targets.memory

    def all_within(self, margin: float) -> list[int]:
        return [branch for branch in range(len(self._situation.branches)) if self.within(branch, margin)]

    def best(self, branches: Iterable[int]) -> int:
        """Return the most accurate of the branches; among equals the fastest, and then the first."""
        return max(branches, key=self._rank)

    @property
    def fastest(self) -> int:
        """Return the fastest branch within the memory limit, or of all branches if none is within it."""
        branches = self._situation.branches
        limit = self._situation.targets.memory
        return min(
            range(len(branches)),
            key=lambda branch: (
                limit is not None and (branches[branch].memory_bytes or 0.0) > limit,
                branches[branch].latency_ms,
            ),
        )

    def decision(self, branch: int) -> Decision:
        costs, targets = self._situation.branches[branch], self._situation.targets
        accurate = costs.metric.reaches(costs.accuracy, targets.accuracy)
        return Decision(branch, self.within(branch) and accurate, self._reason(branch, accurate))

    def _predicted(self, costs: BranchCosts) -> float:
        return costs.latency_ms * self._ratio

    def _rank(self, branch: int) -> tuple[float, float]:
        costs = self._situation.branches[branch]
        return costs.merit, -costs.latency_ms

    def _reason(self, branch: int, accurate: bool) -> str:
        situation = self._situation
        costs, limit = situation.branches[branch], situation.targets.latency
        takes = format_time(self._predicted(costs), 3)
        basis = "predicted" if situation.idle else "measured"
        against = "no latency is asked for" if limit is None else f"the target is {format_time(limit)}"
        parts = [f"branch {branch} takes {takes} at the {basis} ratio {self._ratio:.2f}, {against}"]
        if branch != situation.branch:
            left = situation.branches[situation.branch]
            parts.append(f"branch {situation.branch} would take {format_time(self._predicted(left), 3)}")
        if not self.within(branch):
            parts.append("no branch keeps to the targets")
        elif not accurate:
            parts.append(costs.metric.missed(costs.accuracy, situation.targets.accuracy))
        return "; ".join(parts)


def _cpu_lost(situation: Situation) -> float:
    """Return the factor by which inferences may have slowed down since the last measurement, at least 1.

    While there are no inferences, the free processor time, now and then, is the only hint. It is good enough
    to predict higher latencies, but too rough to predict lower ones.
    """
    then, now = situation.measured_at.cpu_available, situation.reading.cpu_available
    if then is None or now is None:
        return 1.0
    return max(1.0, then / max(now, _LEAST_CPU))
