"""The statistics of folded batch norms, and the changes to a network that replace them.

A batch norm computes `y = gamma * (h - mean) / sqrt(variance + epsilon) + beta` from what the linear operator
in front of it computes, h. Folded, the operator computes y, from whose moments those of h follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["FoldedNorms", "Statistics"]

Floats = npt.NDArray[np.float32]

#: Channels with a smaller folded scale do not show their statistics, and do not change outputs either.
_LEAST_SCALE: Final = 1e-6


@dataclass(frozen=True)
class Statistics:
    """The mean and the variance of the channels that all batch norms read, each [channels of all norms]."""

    mean: Floats
    variance: Floats

    def towards(self, other: "Statistics", rate: float) -> "Statistics":
        """Return statistics that are moved towards others by a share."""
        return Statistics(
            self.mean + rate * (other.mean - self.mean),
            self.variance + rate * (other.variance - self.variance),
        )

    @property
    def finite(self) -> bool:
        """True if all numbers are finite."""
        return bool(np.isfinite(self.mean).all() and np.isfinite(self.variance).all())


@dataclass(frozen=True)
class FoldedNorms:
    """All folded batch norms of a network; every array is [channels of all norms].

    Attributes:
        sizes: The number of channels of each norm.
        gamma: Factors; 1 for a norm without.
        beta: Summands; 0 for a norm without.
        epsilon: The summand of variances.
        shipped: The statistics that were folded.
        usual: How far statistics move without any shift of the data, as returned by `moves`: the farthest
            under streams of a single class.
    """

    sizes: tuple[int, ...]
    gamma: Floats
    beta: Floats
    epsilon: Floats
    shipped: Statistics
    usual: Floats

    def observed(self, means: Sequence[Floats], squares: Sequence[Floats]) -> Statistics:
        """Return the statistics of what the norms read.

        Args:
            means: The mean of each channel of the folded operators' outputs, by norm.
            squares: The mean square of each of these channels, by norm.
        """
        mean, square = np.concatenate(means), np.concatenate(squares)
        scale = self._scale(self.shipped)
        seen = np.abs(scale) > _LEAST_SCALE
        scale = np.where(seen, scale, 1)
        variance = np.maximum(square - mean**2, 0) / scale**2
        return Statistics(
            np.where(seen, (mean - self.beta) / scale + self.shipped.mean, self.shipped.mean),
            np.where(seen, variance, self.shipped.variance),
        )

    def expected(self, statistics: Statistics) -> tuple[list[Floats], list[Floats]]:
        """Return the means and mean squares, by norm, that show these statistics: `observed` backwards."""
        scale = self._scale(self.shipped)
        mean = self.beta + scale * (statistics.mean - self.shipped.mean)
        return self._by_norm(mean), self._by_norm(scale**2 * statistics.variance + mean**2)

    def changes(self, statistics: Statistics) -> tuple[list[Floats], list[Floats]]:
        """Return the factors and summands, by norm, that replace the statistics behind folded operators."""
        shipped, scale = self._scale(self.shipped), self._scale(statistics)
        seen = np.abs(shipped) > _LEAST_SCALE
        factor = np.where(seen, scale / np.where(seen, shipped, 1), 1)
        moved = scale * (self.shipped.mean - statistics.mean)
        summand = np.where(seen, self.beta * (1 - factor) + moved, 0)
        return self._by_norm(factor), self._by_norm(summand)

    def moves(self, statistics: Statistics, since: Statistics | None = None) -> Floats:
        """Return how far statistics have moved.

        Args:
            since: Where they were; the shipped ones by default.

        Returns:
            The mean |log variance ratio| of the channels of each norm, and then the mean distance of their
            means in standard deviations [2 * norms].
        """
        before = since or self.shipped
        variance = before.variance + self.epsilon
        ratios = np.abs(np.log((statistics.variance + self.epsilon) / variance))
        distances = np.abs(statistics.mean - before.mean) / np.sqrt(variance)
        by_norm = [*self._by_norm(ratios), *self._by_norm(distances)]
        return np.array([norm.mean() for norm in by_norm], np.float32)

    def shift(self, statistics: Statistics, since: Statistics | None = None) -> float:
        """Return the largest move of statistics since others, as a multiple of the usual ones.

        The moves of single norms tell a shift of the data from a skew of the classes better than their mean:
        a shift moves some norms much more than any class does, often the first ones.
        """
        return float((self.moves(statistics, since) / self.usual).max())

    def _scale(self, statistics: Statistics) -> Floats:
        scale: Floats = self.gamma / np.sqrt(statistics.variance + self.epsilon)
        return scale

    def _by_norm(self, values: Floats) -> list[Floats]:
        return [part.astype(np.float32) for part in np.split(values, np.cumsum(self.sizes)[:-1])]
