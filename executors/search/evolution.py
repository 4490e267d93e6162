"""A population of genes that gets better from generation to generation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from executors.search.space import Genes

#: How far a mutation moves the width of a group, in halvings: the standard deviation.
_STEP = 0.5

#: How much the widths of the first population differ, likewise.
_SPREAD = 0.5

#: Share of the first population's blocks that are left out.
_LEFT_OUT = 0.1


def initial_population(groups: int, blocks: int, count: int, rng: np.random.Generator) -> list[Genes]:
    """Return genes of random architectures; the first of them keeps all proportions.

    Args:
        groups: Number of channel groups.
        blocks: Number of parts that can be left out.
        count: Number of architectures.

    Returns:
        `count` arrays [groups + blocks].
    """
    widths = rng.normal(0, _SPREAD, (count, groups))
    stays = rng.random((count, blocks)) >= _LEFT_OUT
    widths[:1], stays[:1] = 0, True
    return list(np.concatenate([widths, stays], axis=1))


@dataclass(frozen=True)
class Evolution:
    """Crossover and mutation.

    Attributes:
        groups: Number of genes that are widths; those behind them are blocks.
        crossover_rate: Share of the children that have two parents.
        mutation: Share of a child's genes that change.
    """

    groups: int
    crossover_rate: float
    mutation: float
    rng: np.random.Generator

    def child(self, parents: Sequence[Genes]) -> Genes:
        """Return a child of parents drawn from some; the first of them are drawn more often."""
        first = self._drawn(parents).copy()
        if self.rng.random() < self.crossover_rate:
            from_second = self.rng.random(len(first)) < 0.5
            first[from_second] = self._drawn(parents)[from_second]
        changes = self.rng.random(len(first)) < self.mutation
        changes[self.rng.integers(len(first))] = True
        widths = np.arange(len(first)) < self.groups
        first[changes & widths] += self.rng.normal(0, _STEP, int((changes & widths).sum()))
        first[changes & ~widths] = 1 - first[changes & ~widths]
        return first

    def evolved(
        self,
        population: Sequence[Genes],
        generations: int,
        fitted: Callable[[Genes], Genes | None],
        promise: Callable[[Sequence[Genes]], npt.NDArray[np.float64]],
    ) -> list[Genes]:
        """Return the best after some generations, the most promising first; as many as there were.

        Args:
            population: Genes that meet the limits.
            generations: Number of generations, each of as many children as there are parents.
            fitted: Scales genes until they meet the limits; returns None if they cannot.
            promise: Returns the quality to maximise, one for each of the genes.
        """
        best = list(population)
        for _ in range(generations):
            children = [fitted(self.child(best)) for _ in best]
            everyone = [*best, *(child for child in children if child is not None)]
            everyone = list({genes.tobytes(): genes for genes in everyone}.values())
            order = np.argsort(-promise(everyone), kind="stable")
            best = [everyone[place] for place in order[: len(best)]]
        return best

    def _drawn(self, parents: Sequence[Genes]) -> Genes:
        """Return the better of two."""
        return parents[int(self.rng.integers(len(parents), size=2).min())]
