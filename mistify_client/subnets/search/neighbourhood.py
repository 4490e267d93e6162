"""Moves near the budget, where the best subnets are (NearbyInit, NearbyMutate; AdaptiveNet 5.1)."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np
from typing_extensions import override

from mistify.package.blocks import BlockVariant
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.search.moves import ATTEMPTS, AnywhereMoves, first_different
from mistify_client.subnets.space import Subnet, SubnetSpace

#: Half the width of the band, as a share of the budget.
BAND: Final = 0.05

#: Number of latency steps per band width in draws of subnets.
_FINENESS: Final = 4


class NearbyMoves(AnywhereMoves):
    """Moves within a band of latencies around the budget.

    Attributes:
        low_ms: Lower end of the band, which is wider than requested if it would contain no subnet otherwise.
        high_ms: Upper end of the band.
    """

    def __init__(
        self,
        space: SubnetSpace,
        table: LatencyTable,
        budget_ms: float,
        rng: np.random.Generator,
        band: float = BAND,
    ) -> None:
        """Find the band.

        Args:
            table: The latencies of the blocks.
            budget_ms: The middle of the band.
            band: Half the width of the band, as a share of the budget.
        """
        super().__init__(space, rng)
        self._table = table
        half, first = band * budget_ms, None
        while first is None:
            self.low_ms, self.high_ms = budget_ms - half, budget_ms + half
            self._band = _Band(space, table, self.low_ms, self.high_ms)
            first = next(self._drawn(ATTEMPTS), None)
            half *= 2

    @override
    def initial(self, count: int) -> list[Subnet]:
        """Return distinct subnets of the band, drawn uniformly."""
        return first_different(self._drawn(count * ATTEMPTS), count)

    @override
    def mutated(self, subnet: Subnet) -> Subnet:
        """Return a subnet of the band with a block replaced.

        If this leaves the band, the block elsewhere that best restores the latency is replaced as well. If
        there is no such block, another replacement is tried; after several failures, a subnet of the band is
        drawn.
        """
        for _ in range(ATTEMPTS):
            block = subnet[int(self.rng.integers(len(subnet)))]
            chosen = self.alternative(block.start, subnet)
            changed = self.space.replaced(subnet, chosen)
            if not self._fits(changed):
                others = (
                    self.space.replaced(changed, other)
                    for other in self.space.variants
                    if (other.end <= chosen.start or other.start >= chosen.end) and other not in changed
                )
                before = self._table.latency_ms(subnet)
                changed = min(
                    (other for other in others if chosen in other),
                    key=lambda other: abs(self._table.latency_ms(other) - before),
                    default=changed,
                )
            if self._fits(changed) and changed != subnet:
                return changed
        return self._another()

    @override
    def crossed(self, first: Subnet, second: Subnet) -> Subnet:
        """Return a subnet of the band from the blocks of two others, or else a mutation of the first one."""
        for _ in range(ATTEMPTS):
            child = super().crossed(first, second)
            if self._fits(child):
                return child
        return self.mutated(first)

    def _fits(self, subnet: Subnet) -> bool:
        return self.low_ms <= self._table.latency_ms(subnet) <= self.high_ms

    def _drawn(self, attempts: int) -> Iterator[Subnet]:
        return filter(self._fits, islice(self._band.draws(self.rng), attempts))

    def _another(self) -> Subnet:
        """Return a subnet of the band."""
        return next(filter(self._fits, self._band.draws(self.rng)))


class _Band:
    """Draws subnets of a band uniformly.

    Counts the paths through the store by latency, in small steps, from the outputs backwards. Because
    latencies are rounded to steps, some of the drawn subnets are just outside the band.
    """

    def __init__(self, space: SubnetSpace, table: LatencyTable, low_ms: float, high_ms: float) -> None:
        self._space = space
        last = space.store.last
        step = (high_ms - low_ms) / (_FINENESS * last)
        self._steps = {variant: round(table.of(variant) / step) for variant in space.variants}
        rounding = last / 2
        self._lowest = max(0, math.floor(low_ms / step - rounding))
        self._highest = math.ceil(high_ms / step + rounding)
        self._ways = np.zeros((last + 1, self._highest + 1))
        self._ways[last, 0] = 1
        for position in reversed(range(last)):
            for variant in space.starting_at(position):
                taken = self._steps[variant]
                if taken <= self._highest:
                    self._ways[position, taken:] += self._ways[variant.end, : self._highest + 1 - taken]

    def draws(self, rng: np.random.Generator) -> Iterator[Subnet]:
        """Yield an infinite series of random subnets; nothing if none is near the band."""
        near = self._ways[0, self._lowest :]
        if not near.any():
            return
        shares = near / near.sum()
        while True:
            yield self._drawn(rng, self._lowest + int(rng.choice(len(shares), p=shares)))

    def _drawn(self, rng: np.random.Generator, left: int) -> Subnet:
        """Return a subnet of a latency given in steps."""
        chosen: list[BlockVariant] = []
        position = 0
        while position != self._space.store.last:
            variants = self._space.starting_at(position)
            steps = [self._steps[variant] for variant in variants]
            ways = np.array(
                [
                    self._ways[variant.end, left - taken] if taken <= left else 0.0
                    for variant, taken in zip(variants, steps, strict=True)
                ]
            )
            place = int(rng.choice(len(variants), p=ways / ways.sum()))
            chosen.append(variants[place])
            position, left = variants[place].end, left - steps[place]
        return tuple(chosen)
