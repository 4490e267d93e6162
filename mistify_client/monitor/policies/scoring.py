"""Scores of options by weighted criteria, and limits on their amounts (CrowdHMTware III-D2)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify_client.monitor.policies.base import CriterionScore, Situation
from mistify_client.monitor.policies.criteria import Criterion
from mistify_client.runtime.options import OptionScore

_Vector: TypeAlias = npt.NDArray[np.float64]

#: Criterion -> amount of each option, in the order of the situation's options; NaN where it is unknown.
Amounts: TypeAlias = Mapping[Criterion, _Vector]

#: Amounts are compared by their ratios, and some, such as the memory of a block, may be 0.
_LEAST: Final = 1e-12

#: The share of the memory for an option that it may occupy; the rest is a reserve for everything else.
USABLE_MEMORY: Final = 0.8


def battery_preference(charge: float) -> float:
    """Return how much accuracy counts compared with energy, 0 to 1: mu of equation 3.

    Args:
        charge: Share of the battery's charge, 0 to 1.
    """
    return math.log(1 + 9 * charge) / math.log(10)


def weights_for_battery(weights: Mapping[Criterion, float], preference: float) -> dict[Criterion, float]:
    """Return weights adjusted to the battery's charge; at a preference of 0.5 they do not change.

    With accuracy and energy alone, equally weighted, the score is that of equation 3.

    Args:
        preference: `battery_preference` of the charge.
    """
    factors = {Criterion.ACCURACY: 2 * preference, Criterion.ENERGY: 2 * (1 - preference)}
    return {criterion: weight * factors.get(criterion, 1.0) for criterion, weight in weights.items()}


def amounts_of(situation: Situation) -> Amounts:
    """Return the amount of each option by each criterion."""
    options, slowdown = situation.options, situation.slowdown
    predicted = [situation.conditions.predicted(option, slowdown) for option in options]
    columns = {
        Criterion.ACCURACY: [option.score.merit for option in options],
        Criterion.LATENCY: [one.ms for one in predicted],
        Criterion.ENERGY: [None if one.energy is None else one.energy.mj for one in predicted],
        Criterion.MEMORY: [option.costs.memory_bytes for option in options],
    }
    return {criterion: np.array(column, np.float64) for criterion, column in columns.items()}


class Limits:
    """The limits of a situation, and by how much options exceed them.

    An option whose amount is unknown counts as within the limit.

    Attributes:
        upper: Criterion -> largest amount; criteria without a limit are missing. The limit of the memory is
            the target, or less if less is available.
    """

    def __init__(self, situation: Situation, amounts: Amounts) -> None:
        targets, available = situation.targets, situation.conditions.memory_bytes
        usable = [USABLE_MEMORY * available] if available is not None else []
        memory = min([*usable, *([targets.memory] if targets.memory is not None else [])], default=None)
        limits = {
            Criterion.LATENCY: targets.latency,
            Criterion.ENERGY: targets.energy,
            Criterion.MEMORY: memory,
        }
        self.upper = {name: limit for name, limit in limits.items() if limit is not None}
        self._logs = {name: _log_ratio(amounts[name], limit) for name, limit in self.upper.items()}
        self._missed = np.array(
            [_accuracy_missed(option.score, targets.accuracy) for option in situation.options]
        )

    def excess(self, margin: float = 0.0) -> _Vector:
        """Return the largest excess of each option: the logarithm of its ratio to a limit, at most 0 within.

        Args:
            margin: Share of each upper limit that has to be left.
        """
        reserve = math.log(1 - margin)
        excesses = np.array([self._missed, *(logs - reserve for logs in self._logs.values())])
        worst: _Vector = excesses.max(axis=0)
        return worst

    def exceeded(self, place: int) -> dict[Criterion, float]:
        """Return criterion -> ratio to the limit, for each limit that an option exceeds."""
        logs = {Criterion.ACCURACY: self._missed, **self._logs}
        return {name: math.exp(values[place]) for name, values in logs.items() if values[place] > 0}


@dataclass(frozen=True)
class Scores:
    """Scores of options.

    Attributes:
        weights: Criterion -> share of the score; all shares add up to 1. Unknown criteria are missing.
        utilities: Criterion -> utility of each option: 0 for the worst of all, 1 for the best.
        unknown: Criteria with a weight that are unknown for an option.
        totals: The score of each option, 0 to 1.
    """

    weights: Mapping[Criterion, float]
    utilities: Mapping[Criterion, _Vector]
    unknown: tuple[Criterion, ...]
    totals: _Vector

    @classmethod
    def of(cls, amounts: Amounts, weights: Mapping[Criterion, float]) -> "Scores":
        """Return the scores by the criteria that are known, whose weights are normalized.

        Utilities are linear in the accuracy, and logarithmic in latency, energy and memory.
        """
        utilities = {
            name: _normalized(values if name is Criterion.ACCURACY else -_log_ratio(values, 1.0))
            for name, values in amounts.items()
            if not np.isnan(values).any()
        }
        known = {name: weight for name, weight in weights.items() if name in utilities}
        total = sum(known.values())
        shares = {name: weight / total if total else 1 / len(known) for name, weight in known.items()}
        parts = (share * utilities[name] for name, share in shares.items())
        totals = sum(parts, start=np.zeros_like(utilities[Criterion.ACCURACY]))
        return cls(shares, utilities, tuple(name for name in weights if name not in utilities), totals)

    def by_criterion(self, place: int) -> tuple[CriterionScore, ...]:
        """Return the parts of one option's score, the largest weight first."""
        ordered = sorted(self.weights.items(), key=lambda item: -item[1])
        return tuple(
            CriterionScore(name.value, weight, float(self.utilities[name][place])) for name, weight in ordered
        )


def _accuracy_missed(score: OptionScore, target: float | None) -> float:
    """Return the excess over the target of the accuracy; 0 if the option reaches it."""
    if target is None or score.metric.reaches(score.value, target):
        return 0.0
    ratio = target / max(score.value, _LEAST) if score.metric.is_share else score.value / target
    return max(_LEAST, math.log(max(ratio, 1.0)))


def _normalized(goodness: _Vector) -> _Vector:
    """Return values from 0 for the worst to 1 for the best; 1 for all if they are equal."""
    worst, best = goodness.min(), goodness.max()
    return np.ones_like(goodness) if best <= worst else (goodness - worst) / (best - worst)


def _log_ratio(amounts: _Vector, limit: float) -> _Vector:
    """Return the logarithm of the ratio of amounts to a limit; that of the least amount where unknown."""
    return np.log(np.fmax(amounts, _LEAST) / max(limit, _LEAST))  # of NaN and a number, the number
