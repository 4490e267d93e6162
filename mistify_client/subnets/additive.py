"""The search that scores each variant alone, and takes what variants lose together for the sum of that.

Then the best subnets for all budgets are a matter of adding: those of which no other one is faster and loses
less are found exactly, from the outputs backwards, without scoring any. Some of them are scored, as the sum
is not the truth.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mistify.package.blocks import BlockVariant
from mistify_client.subnets.candidates import Candidates
from mistify_client.subnets.space import Subnet, SubnetSpace
from mistify_client.subnets.table import LatencyTable

#: How many subnets are scored near the budget, and how many at other latencies.
_NEAR: Final = 16
_ELSEWHERE: Final = 8


def additive(space: SubnetSpace, table: LatencyTable, candidates: Candidates, budget_ms: float) -> None:
    """Score each variant alone, then subnets with the best sums: near the budget, and all along.

    Args:
        space: Of the subnets.
        table: With their latencies.
        candidates: Score them.
        budget_ms: That the best one is to keep.
    """
    front = best_sums(space, table, lost_alone(space, candidates))
    fitting = int(np.searchsorted(front.latencies_ms, budget_ms, side="right"))
    near = range(max(0, fitting - _NEAR), fitting)
    apart = np.linspace(front.latencies_ms[0], front.latencies_ms[-1], _ELSEWHERE)
    elsewhere = np.searchsorted(front.latencies_ms, apart, side="right") - 1
    candidates.scored(front.subnet(place) for place in dict.fromkeys([*near, *map(int, elsewhere)]))


def lost_alone(space: SubnetSpace, candidates: Candidates) -> dict[BlockVariant, float]:
    """Return the loss that each variant adds in the original network; below 0 where it is better."""
    alone = {variant: space.replaced(space.original, variant) for variant in space.variants}
    scored = candidates.scored([space.original, *alone.values()])
    whole = scored[0].score.loss
    return {variant: one.score.loss - whole for variant, one in zip(space.variants, scored[1:], strict=True)}


class _Ways(NamedTuple):
    """Ways from a position to the outputs of which no other one is both faster and better, fastest first.

    Attributes:
        latencies_ms: Ascending.
        lost: The sums of what the variants lose alone, descending.
        first: The variant that each begins with, by its number.
        rest: How each goes on: the number of a way from where that variant ends.
    """

    latencies_ms: npt.NDArray[np.float64]
    lost: npt.NDArray[np.float64]
    first: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]


class Front:
    """The subnets of which no other one is both faster and better by its sum, the fastest first.

    Attributes:
        latencies_ms: [subnets], ascending.
        lost: [subnets], the sums, descending.
    """

    def __init__(self, space: SubnetSpace, ways: dict[int, _Ways]) -> None:
        self._space = space
        self._ways = ways
        self.latencies_ms = ways[0].latencies_ms
        self.lost = ways[0].lost

    def subnet(self, place: int) -> Subnet:
        """Return one of the subnets."""
        chosen: list[BlockVariant] = []
        position = 0
        while position != self._space.store.last:
            ways = self._ways[position]
            chosen.append(self._space.variants[ways.first[place]])
            place, position = int(ways.rest[place]), chosen[-1].end
        return tuple(chosen)


def best_sums(space: SubnetSpace, table: LatencyTable, lost: dict[BlockVariant, float]) -> Front:
    """Return the best subnets for all budgets, as far as losses add up.

    Args:
        space: Of the subnets.
        table: With their latencies.
        lost: What each variant loses alone.
    """
    last = space.store.last
    nothing, none = np.zeros(1), np.zeros(1, np.int64)
    ways = {last: _Ways(nothing, nothing, none, none)}
    numbers = {variant: number for number, variant in enumerate(space.variants)}
    for position in reversed(range(last)):
        variants = space.starting_at(position)
        if variants:
            ways[position] = _best(
                [
                    _Ways(
                        ways[variant.end].latencies_ms + table.of(variant),
                        ways[variant.end].lost + lost[variant],
                        np.full(len(ways[variant.end].lost), numbers[variant]),
                        np.arange(len(ways[variant.end].lost)),
                    )
                    for variant in variants
                ]
            )
    return Front(space, ways)


def fastest(space: SubnetSpace, table: LatencyTable) -> Subnet:
    """Return the subnet of the lowest latency."""
    return best_sums(space, table, dict.fromkeys(space.variants, 0.0)).subnet(0)


def _best(several: list[_Ways]) -> _Ways:
    """Return the ways of several sets of which no other one is both faster and better."""
    latencies_ms, lost, first, rest = (np.concatenate(parts) for parts in zip(*several, strict=True))
    order = np.lexsort((lost, latencies_ms))
    before = np.minimum.accumulate(np.concatenate([[np.inf], lost[order][:-1]]))
    best = order[lost[order] < before]
    return _Ways(latencies_ms[best], lost[best], first[best], rest[best])
