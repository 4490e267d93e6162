"""The base class of algorithms that choose each cut among whole architectures."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2
from typing import Final, TypeAlias

import numpy as np

from executors.contract.executor import StuckError
from executors.pruning.executor import IterativePruningExecutor
from executors.pruning.state import PruningState
from executors.search import ArchitectureSpace, Genes, Inheritance, initial_population
from executors.structure import residual_blocks
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, exceeded, tightest_ratio
from mistify.jobs.formatting import excess

__all__ = ["SearchExecutor"]

#: Exponent with which the depth falls with a network's costs: among the best networks of each size, those
#: with twice the multiply-adds are 1.2 times as deep (Tan and Le, 2019: compound scaling).
_DEPTH: Final = log2(1.2)

#: A function that scales genes until they meet limits, or returns None if that is impossible.
Fitted: TypeAlias = Callable[[Genes], Genes | None]


@dataclass(frozen=True)
class CutSearch:
    """The architectures from which one cut is chosen.

    Attributes:
        state: The state of the network to cut.
        inheritance: Measures candidates with inherited weights.
        source_blocks: Names of the source's residual blocks.
    """

    state: PruningState
    space: ArchitectureSpace
    inheritance: Inheritance
    rng: np.random.Generator
    source_blocks: tuple[str, ...]

    @classmethod
    def of(cls, state: PruningState) -> "CutSearch":
        """Return the search over all architectures that can be cut from the current network."""
        assignment = state.assignment
        blocks = tuple(block.name for block in residual_blocks(assignment.source.graph))
        space = ArchitectureSpace(state.structure, state.masks.widths, assignment.profiles)
        inheritance = Inheritance.of(state)
        rng = np.random.default_rng([assignment.seed, state.cuts])
        return cls(state, space, inheritance, rng, blocks)

    def random(self, count: int) -> list[Genes]:
        """Return `count` random architectures, the first of which keeps all proportions."""
        return initial_population(*self.space.size, count, self.rng)

    def depth(self, limits: Costs) -> int:
        """Return the number of residual blocks to keep if the limits allow it.

        Without training, removing blocks hurts a network least, so searches would remove nearly all blocks,
        and the rest would learn less than a narrower network.
        """
        assignment = self.state.assignment
        share = tightest_ratio(costs_of(assignment.source.network(), assignment.profiles), limits)
        return round(len(self.source_blocks) * float(share**_DEPTH))


class SearchExecutor(IterativePruningExecutor):
    """An executor that cuts the network to an architecture that covers the next share of the distance."""

    def adjust(self, weights: Mapping[str, float]) -> None:
        """Do nothing: every candidate meets all limits."""

    @property
    @abstractmethod
    def _population(self) -> int:
        """The number of random candidates at the start of a choice."""

    @abstractmethod
    def _chosen(self, search: CutSearch, population: Sequence[Genes], fitted: Fitted) -> Genes:
        """Return the architecture to continue with.

        Args:
            population: Random candidates that meet the limits, at least one; the first keeps all proportions
                unless it cannot meet them.
            fitted: Scales genes until they meet the limits.
        """

    def _cut(self, done: float) -> None:
        limits, search = self._state.limits(done), CutSearch.of(self._state)
        for depth in dict.fromkeys((search.depth(limits), 0)):
            fitted = partial(search.space.fitted, limits=limits, depth=depth)
            candidates = map(fitted, search.random(self._population))
            population = [genes for genes in candidates if genes is not None]
            if population:
                self._adopt_genes(search, self._chosen(search, population, fitted))
                return
        self._adopt_genes(search, search.space.least)
        if exceeded(self.measure(), limits):
            over = excess(self.measure(), self._state.assignment.budget)
            left = (
                "every channel group at its minimum, no block left to remove, and images as small as possible"
            )
            raise StuckError(f"{over} with {left}")

    def _quality(self, search: CutSearch, genes: Genes) -> float:
        """Return the quality of a candidate with inherited weights; higher is better."""
        architecture = search.space.architecture(genes)
        return search.inheritance.quality(architecture, search.space.structure(architecture))

    def _adopt_genes(self, search: CutSearch, genes: Genes) -> None:
        architecture = search.space.architecture(genes)
        structure = search.space.structure(architecture)
        self._adopt(search.inheritance.keep(architecture), search.inheritance.moments, structure)
