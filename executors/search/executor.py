"""What algorithms share that choose each cut among whole architectures."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log2
from typing import Final, TypeAlias

import numpy as np

from executors.base import StuckError
from executors.pruning.executor import IterativePruningExecutor
from executors.search import Genes, Inheritance, Space, founders
from executors.structure import residual_blocks
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, exceeded, share_left

#: The depth that suits a share of a network's costs, as a power of it: of the networks that are best at each
#: size those with twice the multiply-adds are 1.2 times as deep (Tan and Le, 2019: compound scaling).
_DEPTH: Final = log2(1.2)

#: Makes genes meet limits, or returns None where that cannot be.
Fitted: TypeAlias = Callable[[Genes], Genes | None]


class SearchExecutor(IterativePruningExecutor):
    """Each cut takes what is left to one of the architectures that meet the next share of the way."""

    def adjust(self, weights: Mapping[str, float]) -> None:
        """Nothing is steered: every candidate meets all limits."""

    @property
    @abstractmethod
    def _population(self) -> int:
        """How many random candidates a choice starts from."""

    @abstractmethod
    def _chosen(self, population: Sequence[Genes], fitted: Fitted) -> Genes:
        """The architecture to go on with.

        Args:
            population: Random candidates that meet the limits, at least one; the first keeps all proportions
                unless it cannot meet them.
            fitted: Makes others meet the limits.
        """

    def _cut(self, limits: Costs) -> None:
        self._survey()
        for depth in dict.fromkeys((self._depth(limits), 0)):
            fitted = partial(self._space.fitted, limits=limits, depth=depth)
            population = [
                genes for genes in map(fitted, self._random_genes(self._population)) if genes is not None
            ]
            if population:
                self._adopt_genes(self._chosen(population, fitted))
                return
        self._adopt_genes(self._space.least)
        if exceeded(self.measure(), limits):
            over = ", ".join(exceeded(self.measure(), self._assignment.budget))
            left = "every channel group at its last unit, no block left, and images as small as can be"
            raise StuckError(f"{over} over the limit with {left}")

    def _depth(self, limits: Costs) -> int:
        """Residual blocks that stay as long as the limits can be met so.

        As a network without a block suffers least while nothing is trained, searches would leave out nearly
        all, and what is left learns less than a narrower network would.
        """
        source = self._assignment.source
        share = share_left(costs_of(source.network(), self._assignment.profiles), limits)
        return round(len(self._source_blocks) * float(share**_DEPTH))

    def _survey(self) -> None:
        """Find out what can be cut from the network as it is."""
        moments = self._compensation.moments(self._assignment.setup.train)
        self._source_blocks = [block.name for block in residual_blocks(self._assignment.source.graph)]
        self._space = Space(self._structure, self._masks.widths, self._assignment.profiles)
        self._rng = np.random.default_rng([self._assignment.seed, self._cuts])
        self._inheritance = Inheritance(
            self._structure,
            self._masks,
            self._compensation,
            moments,
            self.trainer.evaluation,
            self._values(moments),
            self._assignment.setup,
        )

    def _random_genes(self, count: int) -> list[Genes]:
        return founders(*self._space.size, count, self._rng)

    def _quality(self, genes: Genes) -> float:
        """How well a candidate does with the weights that it inherits; more is better."""
        architecture = self._space.architecture(genes)
        return self._inheritance.quality(architecture, self._space.structure(architecture))

    def _adopt_genes(self, genes: Genes) -> None:
        architecture = self._space.architecture(genes)
        structure = self._space.structure(architecture)
        self._adopt(self._inheritance.keep(architecture), self._inheritance.moments, structure)
