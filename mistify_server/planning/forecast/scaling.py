"""Interpolated costs of networks with all channel groups scaled by one factor (paper 4.1)."""

from bisect import bisect_right
from collections.abc import Sequence
from math import log2

import numpy as np

from mistify.costs.budget import FLOPS, Budget, Costs


class CostScaling:
    """Costs of a network by scale: piecewise linear in log space between known scales.

    Args:
        scaled: Costs at ascending scales, on the same axes.
    """

    def __init__(self, scaled: Sequence[Costs], source: Costs) -> None:
        self._source = source
        self._axes = tuple(scaled[0])
        #: [scales, axes]
        self._logs = np.log2([[max(costs[axis], 1e-12) for axis in self._axes] for costs in scaled])
        # Narrower networks may cost more if kernels are too small for integer arithmetic. No cut has to go
        # that far: limits are compared with the lowest cost at this scale or any larger one.
        least = np.minimum.accumulate(self._logs[::-1])[::-1]
        self._least = dict(zip(self._axes, least.T.tolist(), strict=True))

    @property
    def whole(self) -> float:
        """The scale of the source."""
        return self.within({FLOPS: self._source[FLOPS]})

    def within(self, budget: Budget) -> float:
        """Return the largest scale at which all limits hold."""
        return min(
            (self._scale_of(axis, limit) for axis, limit in budget.items()), default=len(self._logs) - 1.0
        )

    def exceeding(self, costs: Costs) -> float:
        """Return the smallest scale, at least the source's, at which all costs reach the given ones."""
        return max(self.whole, *(self._scale_of(axis, cost) for axis, cost in costs.items()))

    def costs(self, scale: float) -> dict[str, float]:
        """Return the costs at a scale."""
        return self.costs_at([scale])[0]

    def costs_at(self, scales: Sequence[float]) -> list[dict[str, float]]:
        """Return the costs at each of several scales, which are among the known ones or between them."""
        wanted = np.array(scales, dtype=np.float64)
        below = wanted.astype(np.int64)
        lower, upper = self._logs[below], self._logs[np.minimum(below + 1, len(self._logs) - 1)]
        logs = (upper - lower) * (wanted - below)[:, None] + lower
        return [dict(zip(self._axes, costs, strict=True)) for costs in (2**logs).tolist()]

    def completed(self, costs: Costs) -> dict[str, float]:
        """Return the costs of a network on all axes; missing ones follow from its multiply-adds."""
        return {**self.costs(self.within({FLOPS: costs[FLOPS]})), **costs}

    def halvings(self, costs: Costs) -> float:
        """Return the number of halvings of the source's multiply-adds; negative for larger networks."""
        return log2(self._source[FLOPS] / max(costs[FLOPS], 1.0))

    def _scale_of(self, axis: str, limit: float) -> float:
        """Return the largest scale at which a limit holds; the smallest known scale if it never does."""
        logs, wanted = self._least[axis], log2(limit)
        above = bisect_right(logs, wanted)
        if above in (0, len(logs)):
            return float(max(above - 1, 0))
        low, high = logs[above - 1], logs[above]
        return float(above - 1 + (wanted - low) / (high - low))


def distance(parent: Costs, budget: Budget) -> float:
    """Return the halvings from a network's costs to a budget, on the axis with the most; at least 0."""
    return max(0.0, *(log2(parent[axis] / limit) for axis, limit in budget.items()))
