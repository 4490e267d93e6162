"""ChamNet: an evolutionary search guided by an accuracy predictor ([25], paper Figure 3 and section 7).

Each iteration trains, then searches among the networks that can be cut from the current one and cover the
next share of the distance to the goal. Candidates inherit its weights. The predictor learns from measured
candidates: samples of the source, measured once for all goals, and candidates that the searches proposed.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from math import log2
from operator import itemgetter
from typing import Final

import numpy as np

from executors.algorithms.chamnet.params import ChamNetParams
from executors.algorithms.chamnet.profile import STEPS_OF_SAMPLE
from executors.contract.assignment import Assignment
from executors.contract.params import Params
from executors.contract.preparation import PreparationProgress
from executors.search import Evolution, Genes, Predictor, Sample
from executors.search.executor import CutSearch, Fitted, SearchExecutor
from executors.search.predictor import Floats, samples_of, saved_samples
from executors.structure import resolution
from mistify.costs.budget import FLOPS

#: Searches per iteration, after each of which the predictor is updated, and generations per search.
_ROUNDS: Final = 3
_GENERATIONS: Final = 10

#: Standard deviations added to a predicted quality, in favour of uncertain candidates (exploration).
_EXPLORATION: Final = 0.5

#: The smallest share of the source's multiply-adds among the predictor's first samples.
_LEAST_SHARE: Final = 0.1

#: Samples measured between two checkpoints of the preparation.
_AT_ONCE: Final = 10

#: The preparation part that holds the samples so far.
_SAMPLES: Final = "samples"

#: Feature value of a removed group: fewer channels than any remaining group can have.
_REMOVED: Final = -8.0


class ChamNetExecutor(SearchExecutor):
    """Search over widths, depth and resolution."""

    _params: ChamNetParams

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._predictor = Predictor()

    def init(self, assignment: Assignment) -> None:
        """Load the measured candidates of the source, or continue with those of earlier searches."""
        if self._is_new(assignment.model):
            self._predictor = Predictor.loaded(assignment.prepared)
        super().init(assignment)

    def prepare(self, assignment: Assignment, progress: PreparationProgress) -> bytes:
        """Measure candidates of all sizes, cut from the source."""
        state = self._state_of(assignment)
        search = CutSearch.of(state)
        candidates = search.random(self._params.samples)
        shares = _LEAST_SHARE ** search.rng.random(len(candidates))
        limits = ({FLOPS: state.costs[FLOPS] * share} for share in shares)
        fitted = map(search.space.fitted, candidates, limits)
        architectures = [genes for genes in fitted if genes is not None]
        samples = samples_of(progress.part(_SAMPLES))
        while len(samples) < len(architectures):
            samples += self._measured(search, architectures[len(samples) :][:_AT_ONCE])
            progress.keep(_SAMPLES, saved_samples(samples))
            progress.report(STEPS_OF_SAMPLE * len(samples), STEPS_OF_SAMPLE * len(architectures))
        return Predictor(samples).saved()

    @property
    def _population(self) -> int:
        return self._params.init_population

    def _chosen(self, search: CutSearch, population: Sequence[Genes], fitted: Fitted) -> Genes:
        """Return the best of the measured candidates."""
        params = self._params
        evolution = Evolution(search.space.size[0], params.crossover_rate, params.mutation, search.rng)
        promise = partial(self._promise, search)
        measured: dict[bytes, tuple[float, Genes]] = {}
        for _ in range(_ROUNDS):
            population = evolution.evolved(population, _GENERATIONS, fitted, promise)
            new = [genes for genes in population if genes.tobytes() not in measured]
            samples = self._measured(search, new)
            measured.update(
                {g.tobytes(): (sample.quality, g) for g, sample in zip(new, samples, strict=True)}
            )
            self._predictor.learn(samples)
        return max(measured.values(), key=itemgetter(0))[1]

    def _promise(self, search: CutSearch, candidates: Sequence[Genes]) -> Floats:
        """Return the upper confidence bound of each candidate's quality [candidates]."""
        mean, deviation = self._predictor([_features(search, genes) for genes in candidates])
        return mean + _EXPLORATION * deviation

    def _measured(self, search: CutSearch, candidates: Iterable[Genes]) -> list[Sample]:
        return [Sample(_features(search, genes), self._quality(search, genes)) for genes in candidates]


def _features(search: CutSearch, genes: Genes) -> tuple[float, ...]:
    """Return a candidate's features for the predictor, in similar ranges [groups + 1 + blocks + 1].

    The features are the log2 scale of each of the source's groups and of its image size, 1 for each of its
    blocks that remains and 0 for the others, and the mean log2 scale of the groups before this cut.
    """
    architecture, source = search.space.architecture(genes), search.state.assignment.source
    structure = search.space.structure(architecture)
    widths = [
        log2(architecture.widths[name] / group.size) if name in structure.groups else _REMOVED
        for name, group in source.groups.items()
    ]
    blocks = [float(name in structure.graph.layers) for name in search.source_blocks]
    before = [
        log2(width / source.groups[name].size)
        for name, width in search.state.masks.widths.items()
        if name in source.groups
    ]
    sides = log2(resolution(structure.graph) / resolution(source.graph))
    return (*widths, sides, *blocks, float(np.mean(before)))
