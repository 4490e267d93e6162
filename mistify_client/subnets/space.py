"""The subnets of a block store: all networks that its variants form (AdaptiveNet 4.1)."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BlockStore, BlockVariant

#: Variants from the inputs of the network to its outputs, each beginning where the previous one ends.
Subnet: TypeAlias = tuple[BlockVariant, ...]


class SubnetSpace:
    """All subnets of a store.

    Attributes:
        store: The store with the variants.
        variants: Variants that are in at least one subnet, in the order of the store.
        served: The subnet of the package's own network; None if that network has other blocks.
    """

    def __init__(self, store: BlockStore) -> None:
        """Count the paths through a store.

        Raises:
            MistifyError: CORRUPT_PACKAGE, its variants form no network.
        """
        self.store = store
        self._path_counts = _path_counts(store)
        self.variants = tuple(
            variant
            for variant in store.variants
            if self._path_counts[0][variant.start] and self._path_counts[variant.end][store.last]
        )
        if not self.variants:
            message = "the blocks form no network from the inputs to the outputs; fetch the package again"
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message)
        self.original = self._first(0, store.last)
        self.served = store.network_of(store.served) if store.served else None

    @property
    def count(self) -> int:
        """The number of subnets."""
        return self._path_counts[0][self.store.last]

    def __iter__(self) -> Iterator[Subnet]:
        """Yield every subnet, the original one first."""
        return self._from(0)

    def starting_at(self, position: int) -> tuple[BlockVariant, ...]:
        """Return the variants that begin at a position, one of the original network first."""
        return self._starting.get(position, ())

    def random(self, rng: np.random.Generator) -> Subnet:
        """Return a random subnet, drawn uniformly."""
        chosen: list[BlockVariant] = []
        position = 0
        while position != self.store.last:
            variants = self.starting_at(position)
            whole = self._path_counts[position][self.store.last]
            shares = [self._path_counts[variant.end][self.store.last] / whole for variant in variants]
            chosen.append(variants[int(rng.choice(len(variants), p=shares))])
            position = chosen[-1].end
        return tuple(chosen)

    def replaced(self, subnet: Subnet, variant: BlockVariant) -> Subnet:
        """Return a subnet with another variant in place of its own blocks there.

        Blocks that overlap it only partly are replaced, next to it, by those of the original network.
        """
        before = [block for block in subnet if block.end <= variant.start]
        while not self._path_counts[_end(before)][variant.start]:
            before.pop()
        after = [block for block in subnet if block.start >= variant.end]
        while not self._path_counts[variant.end][self._start(after)]:
            after.pop(0)
        filled_before = self._first(_end(before), variant.start)
        filled_after = self._first(variant.end, self._start(after))
        return (*before, *filled_before, variant, *filled_after, *after)

    @cached_property
    def _starting(self) -> dict[int, tuple[BlockVariant, ...]]:
        positions = range(self.store.last)
        return {at: tuple(variant for variant in self.variants if variant.start == at) for at in positions}

    def _first(self, start: int, end: int) -> Subnet:
        """Return the first variants that lead from one position to another."""
        chosen: list[BlockVariant] = []
        while start != end:
            chosen.append(next(one for one in self.starting_at(start) if self._path_counts[one.end][end]))
            start = chosen[-1].end
        return tuple(chosen)

    def _from(self, position: int) -> Iterator[Subnet]:
        if position == self.store.last:
            yield ()
        for variant in self.starting_at(position):
            for rest in self._from(variant.end):
                yield (variant, *rest)

    def _start(self, blocks: Sequence[BlockVariant]) -> int:
        return blocks[0].start if blocks else self.store.last


def _path_counts(store: BlockStore) -> list[list[int]]:
    """Return, for each pair of positions, the number of paths from the first to the second."""
    size = store.last + 1
    ways = [[int(start == end) for end in range(size)] for start in range(size)]
    for start in reversed(range(size)):
        for variant in (variant for variant in store.variants if variant.start == start):
            for end in range(variant.end, size):
                ways[start][end] += ways[variant.end][end]
    return ways


def _end(blocks: Sequence[BlockVariant]) -> int:
    return blocks[-1].end if blocks else 0
