"""Uniform width scaling, the simplest search algorithm."""

from collections.abc import Sequence

from executors.search import Genes
from executors.search.executor import CutSearch, Fitted, SearchExecutor


class UniformExecutor(SearchExecutor):
    """Uniform width scaling: all channel groups lose the same share of their units."""

    @property
    def _population(self) -> int:
        return 1

    def _chosen(self, search: CutSearch, population: Sequence[Genes], fitted: Fitted) -> Genes:
        return population[0]
