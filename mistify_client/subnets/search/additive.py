"""The search that scores each variant alone, and estimates the loss of combinations by the sum.

The Pareto-optimal subnets in latency and estimated loss then follow exactly, by dynamic programming from the
outputs backwards, without scoring any. Some of them are scored, because the sum is only an estimate; its
errors correct the losses of variants.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mistify.package.block_losses import corrected_losses
from mistify.package.blocks import BlockVariant
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.search.candidates import Candidate, Candidates
from mistify_client.subnets.space import Subnet, SubnetSpace

#: Number of subnets scored over the whole range of latencies.
_ELSEWHERE: Final = 8

#: Number of rounds in which subnets near the budget are scored, and of subnets per round.
_ROUNDS: Final = 6
_NEAR: Final = 4


def additive(space: SubnetSpace, table: LatencyTable, candidates: Candidates, budget_ms: float) -> None:
    """Score each variant alone, then subnets with the best sums, over all latencies and near the budget.

    Args:
        table: The latencies of the blocks.
        candidates: Scores subnets.
        budget_ms: The target for the latency of the best subnet.
    """
    alone = lost_alone(space, candidates)
    front = best_sums(space, table, alone)
    apart = np.linspace(front.latencies_ms[0], front.latencies_ms[-1], _ELSEWHERE)
    elsewhere = np.searchsorted(front.latencies_ms, apart, side="right") - 1
    whole, *_ = candidates.scored([space.original, *(front.subnet(int(place)) for place in elsewhere)])
    near: list[Candidate] = []
    for _ in range(_ROUNDS):
        front = best_sums(space, table, corrected(alone, whole, near))
        places = reversed(range(int(np.searchsorted(front.latencies_ms, budget_ms, side="right"))))
        tried = {one.subnet for one in near}
        new = (subnet for subnet in map(front.subnet, places) if subnet not in tried)
        near += candidates.scored(islice(new, _NEAR))


def lost_alone(space: SubnetSpace, candidates: Candidates) -> dict[BlockVariant, float]:
    """Return the loss that each variant adds in the original network; negative if it is better."""
    alone = {variant: space.replaced(space.original, variant) for variant in space.variants}
    scored = candidates.scored([space.original, *alone.values()])
    whole = scored[0].score.loss
    return {variant: one.score.loss - whole for variant, one in zip(space.variants, scored[1:], strict=True)}


def corrected(
    alone: dict[BlockVariant, float], whole: Candidate, scored: Sequence[Candidate]
) -> dict[BlockVariant, float]:
    """Return the losses of variants, corrected so that their sums are closer to the measured ones.

    Args:
        alone: Loss that each variant adds on its own.
        whole: The original network.
        scored: Subnets with their measured losses.
    """
    replacing = [variant for variant in alone if variant not in whole.subnet]
    has = np.zeros((len(scored), len(replacing)))
    for row, one in zip(has, scored, strict=True):
        row[:] = [variant in one.subnet for variant in replacing]
    added = [alone[variant] for variant in replacing]
    measured = [one.score.loss - whole.score.loss for one in scored]
    lost = corrected_losses(added, has, measured).tolist()
    return alone | dict(zip(replacing, lost, strict=True))


class _Paths(NamedTuple):
    """Pareto-optimal paths from a position to the outputs, in latency and loss, fastest first.

    Attributes:
        latencies_ms: [paths], ascending.
        lost: [paths], sums of the losses that variants add alone, descending.
        first: [paths], index of the first variant.
        rest: [paths], index of the path that continues after the first variant.
    """

    latencies_ms: npt.NDArray[np.float64]
    lost: npt.NDArray[np.float64]
    first: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]


class Front:
    """The Pareto-optimal subnets in latency and sum of losses, fastest first.

    Attributes:
        latencies_ms: [subnets], ascending.
        lost: [subnets], sums of losses, descending.
    """

    def __init__(self, space: SubnetSpace, ways: dict[int, _Paths]) -> None:
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
    """Return the best subnets for all budgets, assuming that losses add up.

    Args:
        table: The latencies of the blocks.
        lost: Loss that each variant adds on its own.
    """
    last = space.store.last
    nothing, none = np.zeros(1), np.zeros(1, np.int64)
    ways = {last: _Paths(nothing, nothing, none, none)}
    numbers = {variant: number for number, variant in enumerate(space.variants)}
    for position in reversed(range(last)):
        variants = space.starting_at(position)
        if variants:
            ways[position] = _best(
                [
                    _Paths(
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
    """Return the subnet with the lowest latency."""
    return best_sums(space, table, dict.fromkeys(space.variants, 0.0)).subnet(0)


def _best(several: list[_Paths]) -> _Paths:
    """Return the Pareto-optimal paths of several sets, in latency and loss."""
    latencies_ms, lost, first, rest = (np.concatenate(parts) for parts in zip(*several, strict=True))
    order = np.lexsort((lost, latencies_ms))
    before = np.minimum.accumulate(np.concatenate([[np.inf], lost[order][:-1]]))
    best = order[lost[order] < before]
    return _Paths(latencies_ms[best], lost[best], first[best], rest[best])
