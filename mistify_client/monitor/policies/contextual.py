"""The policy `contextual`: the best option by weighted criteria within the limits (CrowdHMTware III-D2)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mistify.package.option_kinds import helped_id, local_id
from mistify.parsing.quantities import format_bytes, format_energy, format_time
from mistify.wording import listed
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.policies.criteria import ContextualParams, Criterion
from mistify_client.monitor.policies.scoring import (
    Amounts,
    Limits,
    Scores,
    amounts_of,
    battery_preference,
    weights_for_battery,
)
from mistify_client.runtime.options import Option

_DIGITS: Final = 3

_FORMATS: Final = {
    Criterion.LATENCY: format_time,
    Criterion.ENERGY: format_energy,
    Criterion.MEMORY: format_bytes,
}


class ContextualPolicy(Policy):
    """Policy that weighs accuracy, latency, energy and memory; energy counts more as the battery runs down.

    Limits come first: an option over one of them is left at once, and helpers are asked only if this device
    alone has no option within them. Among the options within the limits, with helpers or without, it switches
    to one with a higher score only after that option has kept a margin in score and limits for a while. If no
    option is within the limits, the one that exceeds them least runs.
    """

    params_class = ContextualParams
    weighs_helpers = True

    def __init__(self, params: ContextualParams) -> None:
        """Keep the settings."""
        self._params, self._weights = params, params.weights
        self._better_since: dict[str, float] = {}
        self._had_battery = False

    def decide(self, situation: Situation) -> Decision:
        """Choose the option to run from now on; see `Policy.decide`."""
        charge = self._charge(situation)
        weights = (
            self._weights
            if charge is None
            else weights_for_battery(self._weights, battery_preference(charge))
        )
        amounts = amounts_of(situation)
        comparison = _Comparison(situation, amounts, Scores.of(amounts, weights), Limits(situation, amounts))
        place = self._place(comparison)
        reasons = [*comparison.reasons(place), *self._battery_reasons(charge)]
        return Decision(
            situation.options[place].id,
            not comparison.limits.exceeded(place),
            "; ".join(reasons),
            comparison.scores.by_criterion(place),
        )

    def _charge(self, situation: Situation) -> float | None:
        """Return the charge that shifts importance, 1 on mains power; None if there is none."""
        match self._params.battery:
            case "ignore":
                return None
            case "sensor":
                charge = situation.reading.battery
                self._had_battery = self._had_battery or charge is not None
                return 1.0 if situation.reading.plugged and charge is not None else charge
            case charge:
                return charge

    def _battery_reasons(self, charge: float | None) -> Iterator[str]:
        if charge is not None:
            yield f"the battery counts as {charge:.0%}"
        elif self._had_battery:
            yield "the battery does not report its charge any more, and does not count"

    def _place(self, comparison: "_Comparison") -> int:
        """Return the index of the option to run."""
        current, margin = comparison.current, self._params.hysteresis
        steadily_better = self._steadily_better(comparison)
        excess = comparison.limits.excess()
        if excess[current] <= 0:
            return comparison.best([current, *steadily_better])
        for reserve in (margin / 2, 0.0):
            if within := np.flatnonzero(comparison.limits.excess(reserve) <= 0).tolist():
                options = comparison.situation.options
                return comparison.best([place for place in within if not options[place].helped] or within)
        least = int(np.argmin(excess))
        # Between options that exceed different limits almost equally, noise must not cause switches.
        much_less = excess[least] < excess[current] - math.log1p(margin)
        return least if much_less or self._has_run_long(comparison.situation) else current

    def _steadily_better(self, comparison: "_Comparison") -> list[int]:
        """Return the options that have kept the margins for the dwell; none if the current one is newer."""
        situation, totals = comparison.situation, comparison.scores.totals
        within = comparison.limits.excess(self._params.hysteresis) <= 0
        least = (1 + self._params.advantage) * totals[comparison.current]
        better = np.flatnonzero(within & (totals > least)).tolist()
        ids = {place: situation.options[place].id for place in better}
        now = situation.now
        self._better_since = {each: self._better_since.get(each, now) for each in ids.values()}
        if not self._has_run_long(situation):
            return []
        return [place for place, each in ids.items() if self._better_since[each] <= now - self._params.dwell]

    def _has_run_long(self, situation: Situation) -> bool:
        """Return True if the current option has run for the dwell."""
        return situation.since <= situation.now - self._params.dwell


@dataclass(frozen=True)
class _Comparison:
    """The options of a situation, with amounts, scores and limits."""

    situation: Situation
    amounts: Amounts
    scores: Scores
    limits: Limits

    @property
    def current(self) -> int:
        """The index of the chosen option."""
        return [option.id for option in self.situation.options].index(self.situation.option)

    def best(self, places: list[int]) -> int:
        """Return the index of the option with the highest score; of equal ones, the first."""
        totals = self.scores.totals
        return max(places, key=lambda place: float(totals[place]))

    def reasons(self, place: int) -> Iterator[str]:
        """Yield the reasons for an option: its score by criterion, its costs, and what it exceeds."""
        scores, option = self.scores, self.situation.options[place]
        parts = ", ".join(
            f"{one.criterion} {one.weight * one.utility:.2f} of {one.weight:.2f}"
            for one in scores.by_criterion(place)
        )
        yield f"{option.id} scores {scores.totals[place]:.2f}: {parts or 'no criterion is known'}"
        if place != self.current:
            left = f"{self.situation.option} would score {scores.totals[self.current]:.2f}"
            yield f"{left} ({missed})" if (missed := self._missed(self.current)) else left
        yield from self._costs(place)
        yield from self._help(option)
        if scores.unknown:
            yield f"{listed([one.value for one in scores.unknown])} cannot be compared"
        if missed := self._missed(place):
            yield f"no option meets the targets, and {option.id} is closest: {missed}"

    def _help(self, option: Option) -> Iterator[str]:
        """Yield the latency in the other placement: without a helper, or with one."""
        situation = self.situation
        if option.helped:
            alone = next(each for each in situation.options if each.id == local_id(option.id))
            yield f"without a helper it would take {format_time(situation.predicted(alone).ms, _DIGITS)}"
        elif (helped_ms := situation.conditions.helped_ms.get(helped_id(option.id))) is not None:
            yield f"with a helper it would take {format_time(helped_ms, _DIGITS)}"

    def _costs(self, place: int) -> Iterator[str]:
        """Yield the costs of an option that have a limit, and its latency."""
        for criterion, write in _FORMATS.items():
            amount, limit = self.amounts[criterion][place], self.limits.upper.get(criterion)
            if np.isnan(amount) or (limit is None and criterion is not Criterion.LATENCY):
                continue
            of_limit = "" if limit is None else f" of {write(limit, _DIGITS)}"
            yield f"{criterion.value} {write(float(amount), _DIGITS)}{of_limit}"

    def _missed(self, place: int) -> str:
        """Return the targets that an option misses, and by how much; empty if none."""
        score, target = self.situation.options[place].score, self.situation.targets.accuracy
        above = [
            f"{name.value} {write(float(self.amounts[name][place]), _DIGITS)} above {write(limit, _DIGITS)}"
            for name, write in _FORMATS.items()
            if name in self.limits.exceeded(place) and (limit := self.limits.upper[name])
        ]
        below = score.metric.missed(score.value, target)
        missed = [*above, *([below] if below else [])]
        return listed(missed) if missed else ""
