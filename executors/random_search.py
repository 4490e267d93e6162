"""Random search among architectures."""

from collections.abc import Sequence
from functools import partial

from pydantic import Field

from executors.pruning.executor import IterativePruningParams
from executors.search import Genes
from executors.search.executor import CutSearch, Fitted, SearchExecutor


class RandomSearchParams(IterativePruningParams):
    """Random search's settings.

    Attributes:
        candidates: Architectures that are measured before each cut.
    """

    candidates: int = Field(default=30, ge=1, le=10_000)


class RandomSearchExecutor(SearchExecutor):
    """The best of some random architectures, with the weights that they inherit."""

    name = "random"
    params_class = RandomSearchParams
    _params: RandomSearchParams

    @property
    def _population(self) -> int:
        return self._params.candidates

    def _chosen(self, search: CutSearch, population: Sequence[Genes], fitted: Fitted) -> Genes:
        return max(population, key=partial(self._quality, search))
