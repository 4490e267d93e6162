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
        self._scales = np.arange(len(scaled), dtype=np.float64)
        logs = {axis: np.log2([max(costs[axis], 1e-12) for costs in scaled]) for axis in scaled[0]}
        self._logs = {axis: values.tolist() for axis, values in logs.items()}
        # Narrower networks may cost more if kernels are too small for integer arithmetic. No cut has to go
        # that far: limits are compared with the lowest cost at this scale or any larger one.
        self._least = {
            axis: np.minimum.accumulate(values[::-1])[::-1].tolist() for axis, values in logs.items()
        }

    @property
    def whole(self) -> float:
        """The scale of the source."""
        return self.within({FLOPS: self._source[FLOPS]})

    def within(self, budget: Budget) -> float:
        """Return the largest scale at which all limits hold."""
        return min(
            (self._scale_of(axis, limit) for axis, limit in budget.items()), default=float(self._scales[-1])
        )

    def exceeding(self, costs: Costs) -> float:
        """Return the smallest scale, at least the source's, at which all costs reach the given ones."""
        return max(self.whole, *(self._scale_of(axis, cost) for axis, cost in costs.items()))

    def costs(self, scale: float) -> dict[str, float]:
        """Return the costs at a scale."""
        return self.costs_at([scale])[0]

    def costs_at(self, scales: Sequence[float]) -> list[dict[str, float]]:
        """Return the costs at each of several scales."""
        logs = np.stack([np.interp(scales, self._scales, own) for own in self._logs.values()], axis=1)
        return [dict(zip(self._logs, costs, strict=True)) for costs in (2**logs).tolist()]

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
            return float(self._scales[max(above - 1, 0)])
        low, high = logs[above - 1], logs[above]
        return float(above - 1 + (wanted - low) / (high - low))


def distance(parent: Costs, budget: Budget) -> float:
    """Return the halvings from a network's costs to a budget, on the axis with the most; at least 0."""
    return max(0.0, *(log2(parent[axis] / limit) for axis, limit in budget.items()))
