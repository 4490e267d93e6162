"""The policy that comes with Mistify: the most accurate branch that is predicted to keep to the targets."""

from collections.abc import Iterable
from typing import Final

from pydantic import Field

from mistify.parsing.quantities import format_time
from mistify.parsing.validation import Settings
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.sensing.costs import BranchCosts

#: Less processor time than this share says no more about how long an inference takes.
_LEAST_CPU: Final = 0.05


class PredictiveParams(Settings):
    """What the policy can be told.

    Attributes:
        hysteresis: how far below the target's latency a better branch has to be, as a share; one that is
            switched down to, half as far where there is one.
        dwell: for how many seconds a better branch has to have been clear of the target all the time, and the
            present one to have run, before the better one takes over. A branch that exceeds a target is left
            at once.
    """

    hysteresis: float = Field(default=0.1, ge=0, lt=1, description="a share from 0 to 1", examples=[0.1])
    dwell: Seconds = Field(default=1.0, description='a time such as "1s"', examples=["1s"])


class PredictivePolicy(Policy):
    """The expected latencies times the measured ratio tell which branches keep to the target (paper 6).

    Down at once, up only with a margin that has lasted: noise around the target costs one switch down, and a
    way up is taken only if each of several decisions in a row has found it clear.
    """

    params_class = PredictiveParams

    def __init__(self, params: PredictiveParams) -> None:
        """See `Policy`."""
        self._params = params
        self._clear_since: dict[int, float] = {}

    def decide(self, situation: Situation) -> Decision:
        """See `Policy`."""
        options = _Options(situation)
        steadily_clear = self._steadily_clear(options, situation.since, situation.now)
        if not options.within(situation.branch):
            return options.decision(self._way_down(options))
        return options.decision(options.best([situation.branch, *steadily_clear]))

    def _steadily_clear(self, options: "_Options", since: float, now: float) -> list[int]:
        """Those that have been clear of the targets for the dwell, once the present one has run as long."""
        clear = options.all_within(self._params.hysteresis)
        self._clear_since = {branch: self._clear_since.get(branch, now) for branch in clear}
        latest = now - self._params.dwell
        return [branch for branch in clear if max(since, self._clear_since[branch]) <= latest]

    def _way_down(self, options: "_Options") -> int:
        """The best branch within the targets, clear of them if possible; the fastest where there is none."""
        for margin in (self._params.hysteresis / 2, 0.0):
            if within := options.all_within(margin):
                return options.best(within)
        return options.fastest


class _Options:
    """The branches as they would do in a situation."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._ratio = situation.ratio * _cpu_lost(situation)

    def within(self, branch: int, margin: float = 0.0) -> bool:
        """Whether a branch stays below the limits, its latency by a margin."""
        costs, targets = self._situation.branches[branch], self._situation.targets
        if targets.latency is not None and self._predicted(costs) > targets.latency * (1 - margin):
            return False
        return targets.memory is None or costs.memory_bytes is None or costs.memory_bytes <= targets.memory

    def all_within(self, margin: float) -> list[int]:
        return [branch for branch in range(len(self._situation.branches)) if self.within(branch, margin)]

    def best(self, branches: Iterable[int]) -> int:
        """The most accurate one; of equals the fastest, and then the first."""
        return max(branches, key=self._rank)

    @property
    def fastest(self) -> int:
        """Of the branches with memory enough, if any, the fastest."""
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
    """By what factor an inference may take longer now than when one was last measured, at least 1.

    While there are none, only the processor tells: what it has to give now against then. It is a hint, good
    enough to be careful with, too rough to be bold with.
    """
    then, now = situation.measured_at.cpu_available, situation.reading.cpu_available
    if then is None or now is None:
        return 1.0
    return max(1.0, then / max(now, _LEAST_CPU))
