"""Random search over architectures."""

from collections.abc import Sequence
from functools import partial

from executors.algorithms.baselines.params import RandomSearchParams
from executors.search import Genes
from executors.search.executor import CutSearch, Fitted, SearchExecutor


class RandomSearchExecutor(SearchExecutor):
    """The best of several random architectures, with inherited weights."""

    _params: RandomSearchParams

    @property
    def _population(self) -> int:
        return self._params.candidates

    def _chosen(self, search: CutSearch, population: Sequence[Genes], fitted: Fitted) -> Genes:
        return max(population, key=partial(self._quality, search))
