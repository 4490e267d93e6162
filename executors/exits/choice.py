"""The choice of exits, and of the confidence from which they answer (CrowdHMTware III-A1).

All exits share one threshold: several thresholds, chosen freely, fit the validation data rather than the
network. For each allowed loss, thresholds are tested from the strictest on, until the bound of the loss
exceeds it (fixed-sequence testing, as in learn-then-test: Angelopoulos et al., 2021).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from executors.outputs.confidence import bound_on_loss

Floats = npt.NDArray[np.float64]

#: Thresholds in the order of their tests.
_THRESHOLDS: Final = (*np.round(np.arange(0.995, 0.3, -0.005), 3).tolist(),)

#: The largest number of exits: each head costs time, and further exits hardly save anything.
MOST_EXITS: Final = 3


@dataclass(frozen=True)
class Answers:
    """The answers of exits and of the whole network to the same examples.

    Attributes:
        confidence: The confidence of each exit [exits, examples].
        right: Whether each exit, and last the whole network, is right [exits + 1, examples].
    """

    confidence: npt.NDArray[np.float32]
    right: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, probabilities: Sequence[npt.NDArray[np.float32]], labels: npt.NDArray[np.int64]) -> "Answers":
        """Return the answers with some probabilities of classes.

        Args:
            probabilities: An array [examples, classes] for each exit, and last for the whole network.
            labels: The class of each example; examples with a class below 0 are left out.
        """
        known = labels >= 0
        confidence = [each[known].max(1) for each in probabilities[:-1]]
        right = [each[known].argmax(1) == labels[known] for each in probabilities]
        return cls(np.array(confidence, np.float32), np.array(right))

    def of_exits(self, exits: Sequence[int]) -> "Answers":
        """Return the answers of some exits and of the whole network."""
        return Answers(self.confidence[list(exits)], self.right[[*exits, len(self.right) - 1]])

    def at(self, threshold: float) -> "Outcome":
        """Return the outcome if exits answer from this confidence on."""
        confident = self.confidence >= np.float32(threshold)
        ends = np.vstack([confident, np.ones((1, confident.shape[1]), bool)]).argmax(0)
        return Outcome(threshold, ends, self.right[ends, np.arange(len(ends))], self.right[-1])


@dataclass(frozen=True)
class Outcome:
    """The answers to examples if exits answer from a threshold on.

    Attributes:
        threshold: The confidence from which an exit answers.
        ends: The exit that answers each example; the number of exits for the whole network [examples].
        right: Whether these answers are right [examples].
        whole: Whether the whole network is right [examples].
    """

    threshold: float
    ends: npt.NDArray[np.int64]
    right: npt.NDArray[np.bool_]
    whole: npt.NDArray[np.bool_]

    @property
    def loss(self) -> float:
        """The measured loss of accuracy."""
        return float(self.whole.mean() - self.right.mean())

    @property
    def bound(self) -> float:
        """The loss of accuracy that is not exceeded with 90 % confidence."""
        return bound_on_loss(self.whole, self.right)

    def rates(self, stages: int) -> Floats:
        """Return the share of examples that ends at each stage [stages]."""
        shares: Floats = np.bincount(self.ends, minlength=stages) / max(1, len(self.ends))
        return shares


def costs_of(trunk: Sequence[int], heads: Sequence[int], whole: int) -> Floats:
    """Return the multiply-adds of an example that ends at each of some exits, and of the whole network.

    Args:
        trunk: Multiply-adds of the layers before each exit.
        heads: Multiply-adds of each head.
        whole: Multiply-adds of the network without heads.
    """
    costs: Floats = np.array([*trunk, whole], np.float64) + np.cumsum([*heads, 0])
    return costs


def within(answers: Answers, allowed: float) -> Outcome | None:
    """Return the outcome at the lowest threshold whose bound on the loss is within the allowed loss."""
    best = None
    for outcome in outcomes(answers):
        if outcome.bound > allowed:
            break
        best = outcome
    return best


def outcomes(answers: Answers) -> Iterator[Outcome]:
    """Yield the outcome at each threshold, from the strictest on."""
    return map(answers.at, _THRESHOLDS)


def best_exits(
    answers: Answers, trunk: Sequence[int], heads: Sequence[int], whole: int, losses: Sequence[float]
) -> tuple[int, ...]:
    """Return the exits with the least expected multiply-adds, summed over the allowed losses.

    Losses are those measured, without a bound: other examples decide on thresholds.

    Args:
        answers: The answers of all possible exits.
        trunk: Multiply-adds of the layers before each of them.
        heads: Multiply-adds of each head.
        whole: Multiply-adds of the network without heads.
        losses: Allowed losses of accuracy against the whole network, as shares.
    """
    sizes = range(1, min(MOST_EXITS, len(trunk)) + 1)
    sets = [exits for size in sizes for exits in combinations(range(len(trunk)), size)]

    def cost(exits: Sequence[int]) -> float:
        own = costs_of([trunk[one] for one in exits], [heads[one] for one in exits], whole)
        tested = list(outcomes(answers.of_exits(exits)))
        return sum(_least_cost(tested, own, allowed) for allowed in losses)

    return min(sets, key=cost)


def _least_cost(tested: Sequence[Outcome], costs: Floats, allowed: float) -> float:
    """Return the expected multiply-adds at the lowest threshold with an allowed loss."""
    least = float(costs[-1])
    for outcome in tested:
        if outcome.loss > allowed:
            break
        least = float(outcome.rates(len(costs)) @ costs)
    return least
