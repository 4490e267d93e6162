"""ChamNet: an evolutionary search guided by a predictor of accuracy ([25], paper Figure 3 and section 7).

Each iteration trains, then searches among the networks that can be cut from the one at hand and meet the
next share of the way to the goal. Candidates inherit its weights. The predictor knows candidates that were
measured: some of the source, once for all goals, and those that the searches proposed.
"""

from collections.abc import Iterable, Sequence
from math import log2
from operator import itemgetter
from typing import Final

import numpy as np
from pydantic import Field

from executors.base import Aptitude, Assignment
from executors.pruning.executor import IterativePruningParams
from executors.search import Evolution, Genes, Predictor, Sample
from executors.search.executor import Fitted, SearchExecutor
from executors.search.predictor import Floats
from executors.structure import copied, resolution
from mistify.costs.budget import FLOPS

#: Searches in each iteration, after each of which the predictor learns.
_ROUNDS: Final = 3
_GENERATIONS: Final = 10

#: Standard deviations of the prediction that count in favour of a candidate: what is uncertain is tried.
_CURIOSITY: Final = 0.5

#: The predictor's first samples have this share of the source's multiply-adds at the least.
_LEAST_SHARE: Final = 0.1

#: In the place of a group that is not there any more: fewer halvings than any group can take.
_GONE: Final = -8.0


class ChamNetParams(IterativePruningParams):
    """ChamNet's settings.

    Attributes:
        init_population: Candidates in a generation; as many are measured in each round of a search.
        crossover_rate: Share of the children that have two parents.
        mutation: Share of a child's genes that change.
        samples: Candidates cut from the source that the predictor learns first.
    """

    cuts: int = Field(default=3, ge=1)
    init_population: int = Field(default=10, ge=2, le=1000)
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    mutation: float = Field(default=0.08, ge=0, le=1)
    samples: int = Field(default=100, ge=0)


class ChamNetExecutor(SearchExecutor):
    """Search over widths, depth and resolution."""

    name = "chamnet"
    params_class = ChamNetParams
    aptitude = Aptitude(preparing=1_000, edge=350)
    _params: ChamNetParams

    def init(self, assignment: Assignment) -> None:
        """Take up what is known of the source's candidates, or go on with what earlier searches found."""
        if self._is_new(assignment.model):
            self._predictor = Predictor.loaded(assignment.prepared)
        super().init(assignment)

    def prepare(self, assignment: Assignment) -> bytes:
        """Measure candidates cut from the source, of all sizes."""
        self._assignment, self._cuts = assignment, 0
        self._take(copied(assignment.model), None)
        self._survey()
        whole, some = self.measure()[FLOPS], self._random_genes(self._params.samples)
        shares = _LEAST_SHARE ** self._rng.random(len(some))
        limits = ({FLOPS: whole * share} for share in shares)
        cut = map(self._space.fitted, some, limits)
        return Predictor(self._measured(genes for genes in cut if genes is not None)).saved()

    @property
    def _population(self) -> int:
        return self._params.init_population

    def _chosen(self, population: Sequence[Genes], fitted: Fitted) -> Genes:
        """The best of those that were measured."""
        evolution = Evolution(
            self._space.size[0], self._params.crossover_rate, self._params.mutation, self._rng
        )
        measured: dict[bytes, tuple[float, Genes]] = {}
        for _ in range(_ROUNDS):
            population = evolution.evolved(population, _GENERATIONS, fitted, self._promise)
            new = [genes for genes in population if genes.tobytes() not in measured]
            samples = self._measured(new)
            measured.update(
                {g.tobytes(): (sample.quality, g) for g, sample in zip(new, samples, strict=True)}
            )
            self._predictor.learn(samples)
        return max(measured.values(), key=itemgetter(0))[1]

    def _promise(self, candidates: Sequence[Genes]) -> Floats:
        mean, deviation = self._predictor([self._features(genes) for genes in candidates])
        return mean + _CURIOSITY * deviation

    def _measured(self, candidates: Iterable[Genes]) -> list[Sample]:
        return [Sample(self._features(genes), self._quality(genes)) for genes in candidates]

    def _features(self, genes: Genes) -> tuple[float, ...]:
        """Halvings of each group of the source and of its images' sides; its blocks; the halvings before."""
        architecture, source = self._space.architecture(genes), self._assignment.source
        structure = self._space.structure(architecture)
        there = structure.groups
        widths = [
            log2(architecture.widths[name] / group.size) if name in there else _GONE
            for name, group in source.groups.items()
        ]
        blocks = [float(name in structure.graph.layers) for name in self._source_blocks]
        widths_before = self._masks.widths.items()
        before = [
            log2(width / source.groups[name].size) for name, width in widths_before if name in source.groups
        ]
        sides = log2(resolution(structure.graph) / resolution(source.graph))
        return (*widths, sides, *blocks, float(np.mean(before)))
