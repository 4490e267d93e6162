"""A population of genes that improves from generation to generation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from executors.search.space import Genes

#: Standard deviation of mutations of a group's width, in halvings.
_STEP = 0.5

#: Standard deviation of the widths in the initial population, in halvings.
_SPREAD = 0.5

#: Share of blocks left out in the initial population.
_LEFT_OUT = 0.1


def initial_population(groups: int, blocks: int, count: int, rng: np.random.Generator) -> list[Genes]:
    """Return genes of random architectures; the first of them keeps all proportions.

    Args:
        groups: Number of channel groups.
        blocks: Number of removable parts.
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
        groups: Number of width genes; the remaining genes are blocks.
        crossover_rate: Share of children with two parents.
        mutation: Share of a child's genes that change.
    """

    groups: int
    crossover_rate: float
    mutation: float
    rng: np.random.Generator

    def child(self, parents: Sequence[Genes]) -> Genes:
        """Return a child of random parents, with a preference for those at the start."""
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
        """Return the best genes after some generations, most promising first, as many as in the population.

        Args:
            population: Genes that meet the limits.
            generations: Number of generations, each with as many children as parents.
            fitted: Scales genes until they meet the limits; returns None if that is impossible.
            promise: Returns the quality to maximise for each of the genes.
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
        """Return the better of two random parents."""
        return parents[int(self.rng.integers(len(parents), size=2).min())]
