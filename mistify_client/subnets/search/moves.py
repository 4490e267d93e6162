"""The moves of a search in the space of subnets: initial population, mutation, crossover."""

from collections.abc import Iterable
from typing import Final, Protocol

import numpy as np

from mistify.package.blocks import BlockVariant
from mistify_client.subnets.space import Subnet, SubnetSpace

#: Number of attempts at a draw that gives nothing new, or nothing that fits.
ATTEMPTS: Final = 20

#: Share of blocks that a mutation replaces; at least one.
_MUTATED: Final = 0.1


class Moves(Protocol):
    """The moves with which a search algorithm changes its candidates."""

    def initial(self, count: int) -> list[Subnet]:
        """Return distinct initial subnets; fewer if there are not enough."""
        ...

    def mutated(self, subnet: Subnet) -> Subnet:
        """Return a subnet with some blocks replaced."""
        ...

    def crossed(self, first: Subnet, second: Subnet) -> Subnet:
        """Return a subnet that combines blocks of two others."""
        ...


class AnywhereMoves:
    """Moves that ignore the latency, as in common architecture search."""

    def __init__(self, space: SubnetSpace, rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng

    def initial(self, count: int) -> list[Subnet]:
        """Return distinct subnets, drawn uniformly."""
        drawn = (self.space.random(self.rng) for _ in range(count * ATTEMPTS))
        return first_different(drawn, count)

    def mutated(self, subnet: Subnet) -> Subnet:
        """Return a subnet in which each block is replaced with a probability of a tenth, at least one."""
        places = np.flatnonzero(self.rng.random(len(subnet)) < _MUTATED)
        chosen = places if len(places) else [self.rng.integers(len(subnet))]
        for block in [subnet[int(place)] for place in chosen]:
            subnet = self.space.replaced(subnet, self.alternative(block.start, subnet))
        return subnet

    def crossed(self, first: Subnet, second: Subnet) -> Subnet:
        """Return a subnet of blocks from two others, drawn at random at positions where both have one."""
        parents = [{block.start: block for block in subnet} for subnet in (first, second)]
        child: list[BlockVariant] = []
        position = 0
        while position != self.space.store.last:
            blocks = [parent[position] for parent in parents if position in parent]
            child.append(blocks[int(self.rng.integers(len(blocks)))])
            position = child[-1].end
        return tuple(child)

    def alternative(self, position: int, subnet: Subnet) -> BlockVariant:
        """Return a variant that begins at a position, different from a subnet's own if there is one."""
        variants = self.space.starting_at(position)
        others = [variant for variant in variants if variant not in subnet] or variants
        return others[int(self.rng.integers(len(others)))]


def first_different(drawn: Iterable[Subnet], count: int) -> list[Subnet]:
    """Return the first distinct subnets of a series, at most `count`."""
    different: dict[Subnet, None] = {}
    for subnet in drawn:
        different[subnet] = None
        if len(different) == count:
            break
    return list(different)
