"""The space of subnets of a supernet, and the search for the best within limits (AdaptiveNet 4.1 and 5.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify.costs.budget import Budget, Costs

#: Consecutive variants, by their numbers.
Subnet: TypeAlias = tuple[int, ...]

#: The maximum number of partial subnets that the search keeps for each position.
_BEAM: Final = 600


@dataclass(frozen=True)
class VariantSpan:
    """The position of a variant in the network.

    Attributes:
        start: Position of its input; 0 is the network's inputs.
        span: Number of positions from its input to its output.
    """

    name: str
    start: int
    span: int

    @property
    def end(self) -> int:
        """The position of its output."""
        return self.start + self.span

    def replaces_the_same(self, other: "VariantSpan") -> bool:
        """Return whether another variant replaces the same blocks."""
        return (self.start, self.span) == (other.start, other.span)


@dataclass(frozen=True)
class SupernetSpace:
    """The space of subnets: sequences of variants from the inputs to the outputs without gaps or overlaps.

    Attributes:
        places: Positions of the variants; the blocks of the original network come first, in order.
        blocks: Number of blocks of the original network.
    """

    places: tuple[VariantSpan, ...]
    blocks: int

    @property
    def original(self) -> Subnet:
        """The original network."""
        return tuple(range(self.blocks))

    @cached_property
    def starting(self) -> Mapping[int, tuple[int, ...]]:
        """The variants by the position of their input."""
        return {
            position: tuple(n for n, place in enumerate(self.places) if place.start == position)
            for position in range(self.blocks)
        }

    @cached_property
    def ending(self) -> Mapping[int, tuple[int, ...]]:
        """The variants by the position of their output."""
        return {
            position: tuple(n for n, place in enumerate(self.places) if place.end == position)
            for position in range(1, self.blocks + 1)
        }

    def count(self) -> int:
        """Return the number of subnets."""
        ways = [1]
        for position in range(1, self.blocks + 1):
            ways.append(sum(ways[self.places[number].start] for number in self.ending[position]))
        return ways[-1]

    def random(self, rng: np.random.Generator) -> Subnet:
        """Return a random subnet, chosen at each position from the variants that begin there."""
        position, chosen = 0, []
        while position < self.blocks:
            chosen.append(int(rng.choice(self.starting[position])))
            position = self.places[chosen[-1]].end
        return tuple(chosen)

    def with_one(self, number: int) -> Subnet:
        """Return the original network with one variant in place of the blocks that it replaces."""
        place = self.places[number]
        return (*range(place.start), number, *range(place.end, self.blocks))

    def path(self, subnet: Subnet) -> npt.NDArray[np.int32]:
        """Return a subnet as the choice at each position from 1 on [blocks].

        A choice is the index of the variant among those that end at the position, or their number if none of
        the subnet's variants ends there.
        """
        ends = {self.places[number].end: number for number in subnet}
        return np.array(
            [
                numbers.index(ends[position]) if position in ends else len(numbers)
                for position, numbers in self.ending.items()
            ],
            np.int32,
        )

    def within(self, costs: Sequence[Costs], losses: Sequence[float], limits: Budget) -> Iterator[Subnet]:
        """Yield subnets whose summed costs are within the limits, in order of increasing loss.

        The loss of a subnet is estimated by the sum of its variants' losses. If more partial subnets meet the
        limits than the search can keep, it drops those with the highest losses.

        Args:
            costs: Costs of each variant, at least on the axes of the limits.
            losses: Loss added by each variant alone.
            limits: Limits on summed costs.
        """
        axes = sorted(limits)
        own = np.array([[cost[axis] for axis in axes] for cost in costs])
        left = self._least_behind(own)
        most = np.array([limits[axis] for axis in axes])
        reached: dict[int, list[tuple[float, tuple[float, ...], Subnet]]] = {
            0: [(0.0, (0.0,) * len(axes), ())]
        }
        for position in range(1, self.blocks + 1):
            beginnings = [
                (loss + losses[number], tuple(np.add(spent, own[number])), (*subnet, number))
                for number in self.ending[position]
                for loss, spent, subnet in reached[self.places[number].start]
                if (np.add(spent, own[number]) + left[position] <= most).all()
            ]
            reached[position] = _pareto_optimal(beginnings)
        yield from (subnet for _, _, subnet in reached[self.blocks])

    def cheapest(self, costs: Sequence[float]) -> Subnet:
        """Return the subnet with the smallest sum of costs, given one cost for each variant."""
        best: dict[int, tuple[float, Subnet]] = {0: (0.0, ())}
        for position, numbers in self.ending.items():
            best[position] = min(
                (best[self.places[n].start][0] + costs[n], (*best[self.places[n].start][1], n))
                for n in numbers
            )
        return best[self.blocks][1]

    def _least_behind(self, own: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the lowest costs from each position to the end [blocks + 1, axes]."""
        left = np.zeros((self.blocks + 1, own.shape[1]))
        for position in reversed(range(self.blocks)):
            ways = [own[number] + left[self.places[number].end] for number in self.starting[position]]
            left[position] = np.min(ways, axis=0)
        return left


def _pareto_optimal(
    beginnings: list[tuple[float, tuple[float, ...], Subnet]],
) -> list[tuple[float, tuple[float, ...], Subnet]]:
    """Return the Pareto-optimal partial subnets, in order of loss."""
    kept: list[tuple[float, tuple[float, ...], Subnet]] = []
    spent = np.empty((_BEAM, len(beginnings[0][1]) if beginnings else 0))
    for one in sorted(beginnings):
        if len(kept) == _BEAM:
            break
        if not (spent[: len(kept)] <= one[1]).all(axis=1).any():
            spent[len(kept)] = one[1]
            kept.append(one)
    return kept
