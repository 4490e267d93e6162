"""The default policy: the best option that is predicted to meet the targets."""

from collections.abc import Iterable

from pydantic import Field

from mistify.package.option_kinds import OptionKind
from mistify.parsing.quantities import format_time
from mistify.parsing.validation import Settings
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.runtime.options import Option


class PredictiveParams(Settings):
    """Settings of the predictive policy.

    Attributes:
        hysteresis: Margin below the latency target, as a share of it, that a better option has to keep. When
            switching down, an option with half this margin is preferred, if there is one.
        dwell: Seconds for which a better option has to keep the margin without interruption, and the current
            option has to have run, before a switch to the better one. A switch away from an option that
            misses a target happens at once.
    """

    hysteresis: float = Field(default=0.1, ge=0, lt=1, description="a share from 0 to 1", examples=[0.1])
    dwell: Seconds = Field(default=1.0, description='a time such as "1s"', examples=["1s"])


class PredictivePolicy(Policy):
    """Policy that predicts latencies as the expected ones times the measured ratio (paper 6).

    It switches down at once, but up only to an option that has kept a margin in every decision for a while.
    Noise around the target therefore causes one switch down, but no oscillation.
    """

    params_class = PredictiveParams

    def __init__(self, params: PredictiveParams) -> None:
        """Keep the settings."""
        self._params = params
        self._clear_since: dict[str, float] = {}

    def decide(self, situation: Situation) -> Decision:
        """Choose the option to run from now on; see `Policy.decide`."""
        predicted = _Predictions(situation)
        steadily_clear = self._steadily_clear(predicted, situation.since, situation.now)
        if not predicted.within(situation.chosen):
            return predicted.decision(self._way_down(predicted))
        return predicted.decision(predicted.best([situation.chosen, *steadily_clear]))

    def _steadily_clear(self, predicted: "_Predictions", since: float, now: float) -> list[Option]:
        """Return the options that have kept the margin for the dwell, if the current one has run as long."""
        clear = predicted.all_within(self._params.hysteresis)
        self._clear_since = {option.id: self._clear_since.get(option.id, now) for option in clear}
        latest = now - self._params.dwell
        return [option for option in clear if max(since, self._clear_since[option.id]) <= latest]

    def _way_down(self, predicted: "_Predictions") -> Option:
        """Return the best option within the targets, with a margin if possible, or else the fastest."""
        for margin in (self._params.hysteresis / 2, 0.0):
            if within := predicted.all_within(margin):
                return predicted.best(within)
        return predicted.fastest


class _Predictions:
    """The options of a situation, with their predicted latencies."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._places = {option.id: place for place, option in enumerate(situation.options)}

    def within(self, option: Option, margin: float = 0.0) -> bool:
        """Return True if an option meets the limits, its latency with a margin (a share of the limit)."""
        predicted, targets = self._situation.predicted(option), self._situation.targets
        amounts = (
            (predicted.ms, None if targets.latency is None else targets.latency * (1 - margin)),
            (option.costs.memory_bytes, targets.memory),
            (None if predicted.energy is None else predicted.energy.mj, targets.energy),
        )
        return all(amount is None or limit is None or amount <= limit for amount, limit in amounts)

    def all_within(self, margin: float) -> list[Option]:
        return [option for option in self._situation.options if self.within(option, margin)]

    def best(self, options: Iterable[Option]) -> Option:
        """Return the best of the options.

        Among branches it is the most accurate one; in a tie the fastest, and then the first. Subnets are
        ordered by accuracy and loss, so it is the last one that reaches the target accuracy, if any does.
        """
        return max(options, key=self._rank)

    @property
    def fastest(self) -> Option:
        """Return the fastest option within the memory limit, or the fastest of all if none is within it."""
        limit = self._situation.targets.memory
        return min(
            self._situation.options,
            key=lambda option: (
                limit is not None and (option.costs.memory_bytes or 0.0) > limit,
                option.costs.latency_ms,
            ),
        )

    def decision(self, option: Option) -> Decision:
        accurate = self._accurate(option)
        return Decision(option.id, self.within(option) and accurate, self._reason(option, accurate))

    def _predicted(self, option: Option) -> float:
        return self._situation.predicted(option).ms

    def _accurate(self, option: Option) -> bool:
        return option.score.metric.reaches(option.score.value, self._situation.targets.accuracy)

    def _rank(self, option: Option) -> tuple[float, float]:
        if option.kind is OptionKind.SUBNET:
            return self._accurate(option), self._places[option.id]
        return option.score.merit, -option.costs.latency_ms

    def _reason(self, option: Option, accurate: bool) -> str:
        situation, limit = self._situation, self._situation.targets.latency
        takes = format_time(self._predicted(option), 3)
        basis = "predicted" if situation.idle else "measured"
        against = "no latency target is set" if limit is None else f"the target is {format_time(limit)}"
        parts = [f"{option.id} takes {takes} at the {basis} ratio {situation.slowdown:.2f}, {against}"]
        if option.id != situation.option:
            left = situation.chosen
            parts.append(f"{left.id} would take {format_time(self._predicted(left), 3)}")
        if not self.within(option):
            parts.append("no option meets the targets")
        elif not accurate:
            parts.append(option.score.metric.missed(option.score.value, situation.targets.accuracy))
        return "; ".join(parts)
