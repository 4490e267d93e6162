"""Subnet sampling for path training, biased towards subnets that goals are likely to select."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from executors.algorithms.adaptivenet.space import Subnet, SupernetSpace

#: The share of subnets drawn uniformly from all, regardless of cost and loss.
_UNIFORM_SHARE: Final = 0.2

#: The assumed error of the variants' losses: the standard deviation of their natural logarithm.
_LOSS_DEVIATION: Final = 0.7

#: Subnets drawn to find the variants that goals may need, and the share of them in which such a variant is.
_DRAWN: Final = 600
_NEEDED_SHARE: Final = 1 / 20

#: Bisection steps in the search for the cost penalty at which a subnet just meets its limit.
_HALVINGS: Final = 12


class PathSampler:
    """A sampler of subnets near the optimum: goals need only a few of the millions of subnets.

    Each sample is the best subnet within a random limit, according to randomly perturbed losses.
    AttentiveNAS (Wang et al., 2021) also draws the best of several.

    Args:
        costs: Multiply-adds of each variant.
        losses: Loss added by each variant alone.
    """

    def __init__(self, space: SupernetSpace, costs: Sequence[float], losses: Sequence[float]) -> None:
        self._space = space
        self._costs = np.array(costs, float)
        worst = max(losses)
        # Without this floor, a variant with a loss of zero would be in every sample.
        self._losses = np.maximum(losses, worst / 100 if worst > 0 else 1.0)
        self._losses[: space.blocks] = 0.0
        self._most = self._cost(space.original)
        self._least = self._cost(space.cheapest(costs))

    def draw(self, rng: np.random.Generator) -> Subnet:
        """Return a random subnet other than the original network."""
        while True:
            subnet = self._space.random(rng) if rng.random() < _UNIFORM_SHARE else self._near_best(rng)
            if subnet != self._space.original:
                return subnet

    def needed(self, rng: np.random.Generator) -> list[int]:
        """Return the variants that goals may need: those in many subnets near the best, and in the cheapest.

        If no subnet is cheaper than the original network, all are returned.
        """
        drawn = Counter(number for _ in range(_DRAWN) for number in self._near_best(rng))
        often = {number for number, times in drawn.items() if times >= _NEEDED_SHARE * _DRAWN}
        variants = range(self._space.blocks, len(self._costs))
        needed = often.union(self._space.cheapest(self._costs.tolist())).intersection(variants)
        return sorted(needed or variants)

    def _near_best(self, rng: np.random.Generator) -> Subnet:
        limit = rng.uniform(self._least, self._most)
        losses = self._losses * np.exp(_LOSS_DEVIATION * rng.standard_normal(len(self._losses)))
        return self._best(limit, losses)

    def _best(self, limit: float, losses: np.ndarray) -> Subnet:
        """Return the approximately best subnet within a limit, found by bisecting a penalty on costs."""
        low, high = 0.0, 1.0
        while self._cost(best := self._priced(losses, high)) > limit and np.isfinite(high):
            low, high = high, 4 * high
        for _ in range(_HALVINGS):
            price = (low + high) / 2
            subnet = self._priced(losses, price)
            if self._cost(subnet) > limit:
                low = price
            else:
                high, best = price, subnet
        return best

    def _priced(self, losses: np.ndarray, price: float) -> Subnet:
        relative = self._costs / self._most
        return self._space.cheapest((losses + price * relative).tolist())

    def _cost(self, subnet: Subnet) -> float:
        return float(self._costs[list(subnet)].sum())
