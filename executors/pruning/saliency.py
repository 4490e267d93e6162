"""The units of a channel group that a network misses least, once the others have taken over from them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from executors.pruning.reconstruction import Array, Consumer, Moments, covariance
from executors.structure import Keep

Ids = npt.NDArray[np.int64]

#: Part of a group's units that are put in order one by one; the others follow in the order found by then.
_ORDERED = 0.5


def saliencies(
    consumers: Mapping[str, list[Consumer]], keep: Keep, moments: Mapping[int, Moments]
) -> dict[str, Array]:
    """Return for each group the loss when each of its units goes, after those that matter less.

    Units are eliminated one by one, always the one whose loss changes least what the group's consumers
    compute, as the others take over from it in the least squares (Optimal Brain Surgeon, Hassibi and Stork,
    1993, for each layer's output). Of two equivalent units, the first is worth nothing, and the second is
    worth both.

    Args:
        consumers: Group -> kernels that read it.
        keep: The units that are left.
        moments: The moments of the tensors that are read.

    Returns:
        The root of the share of the consumers' output variance that goes with each unit [units], rising in
        the order of elimination; 0 for units that are gone already.
    """
    return {group: _eliminate(group, readers, keep, moments) for group, readers in consumers.items()}


def _eliminate(group: str, consumers: list[Consumer], keep: Keep, moments: Mapping[int, Moments]) -> Array:
    fits = [_Fit.of(consumer, group, keep, moments[consumer.tensor]) for consumer in consumers]
    left = np.flatnonzero(keep[group])
    saliency = np.zeros(len(keep[group]))
    worst = 0.0
    for _ in range(int(_ORDERED * len(left))):
        losses = _total(fits, left)
        least = int(np.argmin(losses))
        worst = max(worst, float(losses[least]))
        saliency[left[least]] = worst
        for fit in fits:
            fit.eliminate(left[least])
        left = np.delete(left, least)
    saliency[left] = np.maximum(worst, _total(fits, left))
    return np.sqrt(saliency)


def _total(fits: "list[_Fit]", units: Ids) -> Array:
    return np.asarray(np.sum([fit.losses(units) for fit in fits], axis=0))


@dataclass
class _Fit:
    """A consumer's weights while units are eliminated, each time fitted again.

    Attributes:
        inverse: Inverse covariance of the channels that are left [channels, channels].
        weights: Contribution of each channel [channels, outputs].
        positions: The channels of each unit [units, channels per unit].
        total: Variance of the outputs.
    """

    inverse: Array
    weights: Array
    positions: Ids
    total: float

    @classmethod
    def of(cls, consumer: Consumer, group: str, keep: Keep, moments: Moments) -> "_Fit":
        """Return the fit of a consumer's weights before any unit is eliminated."""
        there = consumer.kept(keep)
        kept = np.flatnonzero(there)
        numbers = np.cumsum(there) - 1
        spread = covariance(consumer, moments, kept)
        weights = consumer.rows()[kept]
        slots = [slot.positions for name, slot in consumer.slots if name == group]
        positions = numbers[np.concatenate(slots, axis=1)]
        total = max(float(np.sum(weights * (spread @ weights))), float(np.finfo(np.float32).tiny))
        inverse: Array = np.linalg.inv(spread).astype(np.float64)
        return cls(inverse, weights, positions, total)

    def losses(self, units: Ids) -> Array:
        """Return the share of the output's variance that is lost with each of these units by itself."""
        squares = np.square(self.weights).sum(axis=1) / np.diag(self.inverse).clip(np.finfo(float).tiny)
        return np.asarray(squares[self.positions[units]].sum(axis=1) / self.total)

    def eliminate(self, unit: int) -> None:
        """Take a unit out; the others take over."""
        for channel in self.positions[unit]:
            column = self.inverse[:, channel] / self.inverse[channel, channel]
            self.weights -= np.outer(column, self.weights[channel])
            self.inverse -= np.outer(column, self.inverse[channel])
            # Exactly gone: what rounding leaves would be divided by what rounding leaves.
            self.inverse[channel] = self.inverse[:, channel] = 0
            self.inverse[channel, channel] = 1
            self.weights[channel] = 0
