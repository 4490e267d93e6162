"""Saliency of a channel group's units: the loss without each unit after the others have compensated."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from executors.pruning.reconstruction import Array, Consumer, Moments, covariance
from executors.structure import Keep

Ids = npt.NDArray[np.int64]

#: Share of a group's units that are eliminated one by one; the others follow in the order found by then.
_ORDERED = 0.5


def saliencies(
    consumers: Mapping[str, list[Consumer]], keep: Keep, moments: Mapping[int, Moments]
) -> dict[str, Array]:
    """Return for each group the loss from removing each of its units, after the less important ones.

    Units are eliminated one by one. Each step removes the unit that changes the outputs of the group's
    consumers least after the remaining units have compensated by least squares (Optimal Brain Surgeon,
    Hassibi and Stork, 1993, for each layer's output). Of two equivalent units, the first has a loss of zero,
    and the second that of both.

    Args:
        consumers: Group -> kernels that read it.
        keep: The units left in each group.
        moments: The moments of the tensors that are read.

    Returns:
        The square root of the share of the consumers' output variance lost with each unit [units], increasing
        in the order of elimination; 0 for units that were already cut.
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
    """A consumer's weights, refitted after each elimination of a unit.

    Attributes:
        inverse: Inverse covariance of the remaining channels [channels, channels].
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
        """Return the share of the output variance lost by removing each of these units alone."""
        squares = np.square(self.weights).sum(axis=1) / np.diag(self.inverse).clip(np.finfo(float).tiny)
        return np.asarray(squares[self.positions[units]].sum(axis=1) / self.total)

    def eliminate(self, unit: int) -> None:
        """Remove a unit; the others compensate."""
        for channel in self.positions[unit]:
            column = self.inverse[:, channel] / self.inverse[channel, channel]
            self.weights -= np.outer(column, self.weights[channel])
            self.inverse -= np.outer(column, self.inverse[channel])
            # Set to exactly zero: otherwise one rounding error would be divided by another.
            self.inverse[channel] = self.inverse[:, channel] = 0
            self.inverse[channel, channel] = 1
            self.weights[channel] = 0
