"""The subnets that the training of paths draws: mostly those that goals are likely to get."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from executors.algorithms.adaptivenet.space import Subnet, SupernetSpace

#: The share of the subnets that are drawn from all, whatever they cost and lose.
_OF_ALL: Final = 0.2

#: How far what variants lose is taken to be off: the standard deviation of its natural logarithm.
_DOUBT: Final = 0.7

#: Halvings of the price of a cost until a subnet is near enough to a limit.
_HALVINGS: Final = 12


class PathSampler:
    """Draws subnets near the best ones, since goals need only a few of the millions.

    Each is the best subnet within a random limit, by losses that are changed at random. (Wang et al.,
    AttentiveNAS, 2021, draw the best of several as well.)

    Args:
        costs: Multiply-adds of each variant.
        losses: Loss that each variant adds by itself.
    """

    def __init__(self, space: SupernetSpace, costs: Sequence[float], losses: Sequence[float]) -> None:
        self._space = space
        self._costs = np.array(costs, float)
        worst = max(losses)
        # What loses nothing would be in all that are drawn.
        self._losses = np.maximum(losses, worst / 100 if worst > 0 else 1.0)
        self._losses[: space.blocks] = 0.0
        self._most = self._cost(space.original)
        self._least = self._cost(space.cheapest(costs))

    def draw(self, rng: np.random.Generator) -> Subnet:
        """Return another subnet than the network itself."""
        while True:
            subnet = self._space.random(rng) if rng.random() < _OF_ALL else self._near_best(rng)
            if subnet != self._space.original:
                return subnet

    def _near_best(self, rng: np.random.Generator) -> Subnet:
        limit = rng.uniform(self._least, self._most)
        losses = self._losses * np.exp(_DOUBT * rng.standard_normal(len(self._losses)))
        return self._best(limit, losses)

    def _best(self, limit: float, losses: np.ndarray) -> Subnet:
        """Return the subnet that loses least within a limit, or nearly so: costs are given a price."""
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
