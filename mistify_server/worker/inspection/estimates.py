"""Estimates from an inspection for future edges (paper 4.1, 4.3)."""

from collections.abc import Collection
from math import isfinite, log2
from time import perf_counter
from typing import Final

import numpy as np

from executors.contract.profile import AlgorithmProfile
from executors.contract.registry import algorithms, profile_of
from executors.data import Dataset
from executors.structure import Structure, residual_blocks
from executors.structure.fingerprint import digest_of, kind_of
from executors.synthesis.inputs import passes
from executors.training.evaluation import Evaluation
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.algorithm import AUTO
from mistify.config.data.dataset import generated_count
from mistify.config.data.metric import OutputScore
from mistify.costs.axes import costs_of
from mistify.costs.profiles import HardwareProfile
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.params import params_of

#: Multiples of the widths at which costs are computed: the largest one, and the factor between steps.
_WIDEST: Final = 2.0
_STEP: Final = 2**-0.5

#: Number of validation examples on which the source is evaluated.
EXAMPLES: Final = 500

#: Training steps per timing, after the same number of warm-up steps, and the total seconds of timing.
_STEPS: Final = 5
_SECONDS: Final = 0.3

#: A learning rate without divergence, relative to the maximum.
_HARMLESS: Final = 1e-6


def estimates_of(
    structure: Structure, task: InspectTask, hardware: Collection[HardwareProfile]
) -> EdgeEstimates:
    """Estimate the edges of a model without running it.

    Args:
        task: The task with the algorithm and its settings.
        hardware: Profiles of the relevant hardware.
    """
    graph, recipe = structure.graph, task.recipe
    params = params_of(recipe)
    return EdgeEstimates(
        features=NetworkFeatures(
            model=digest_of(graph), kind=kind_of(graph), blocks=len(residual_blocks(graph))
        ),
        source_steps=params.source_steps if recipe.data.teaches_source else 0,
        profiles=_profiles(structure, recipe),
        scaled=_scaled(structure, hardware),
        generating=_generating(recipe.data) / params.batch_size,
    )


def with_measurements(
    estimates: EdgeEstimates, trainer: Trainer, setup: TrainingSetup, measures: Collection[str]
) -> EdgeEstimates:
    """Return the estimates with measurements of the source.

    Args:
        estimates: The estimates so far.
        trainer: The trainer of a copy of the source.
        setup: The data and settings for training.
        measures: Any of `accuracy` and `step`.
    """
    figures: dict[str, object] = {}
    if "accuracy" in measures:
        sample = setup.validation.sample(EXAMPLES)
        accuracy, scores = sampled_scores(trainer.evaluation, sample, setup)
        nats = trainer.evaluation.nats(sample)
        figures |= {"accuracy": accuracy, "output_scores": scores, "nats": nats}
    if "step" in measures:
        figures["step_seconds"] = _step_seconds(trainer)
    return estimates.model_copy(update=figures)


def sampled_scores(
    evaluation: Evaluation, sample: Dataset, setup: TrainingSetup
) -> tuple[float | None, tuple[OutputScore, ...]]:
    """Return the score of a network on a sample, and the known scores of its outputs.

    A sample may lack examples that a metric needs, such as examples of two classes.
    """
    scores, _ = evaluation.judge(sample, setup.metric, setup.settings.metrics)
    overall = scores.overall if isfinite(scores.overall) else None
    return overall, tuple(own for own in scores.outputs if isfinite(own.value))


def _generating(data: DataSource) -> int:
    """Return the number of examples in forward and backward passes during data generation."""
    return sum(passes(generated_count(part)) for part in (data.train, data.test) if part)


def _profiles(structure: Structure, recipe: Recipe) -> dict[str, AlgorithmProfile]:
    """Return the profiles of the algorithms that a recipe allows."""
    names = [recipe.algorithm]
    if recipe.algorithm == AUTO:
        names = [name for name, known in algorithms().items() if known.automatic]
    recipes = (recipe.model_copy(update={"algorithm": name}) for name in names)
    return {own.algorithm: profile_of(own.algorithm, params_of(own), structure) for own in recipes}


def _scaled(structure: Structure, profiles: Collection[HardwareProfile]) -> tuple[dict[str, float], ...]:
    """Return costs with all channel groups scaled, from minimum widths to four times the source's costs."""
    narrowest = _WIDEST * max(structure.widths.values(), default=1)
    count = int(log2(narrowest) / -log2(_STEP)) + 2
    costs = []
    for place in range(count):
        scale = _WIDEST * _STEP**place
        widths = {
            name: max(group.least, round(group.size * scale)) for name, group in structure.groups.items()
        }
        costs.append(dict(costs_of(structure.network(widths), profiles)))
    return tuple(reversed(costs))


def _step_seconds(trainer: Trainer) -> float:
    """Return the minimum of several measurements, because the machine may have other work."""
    schedule = np.full(_STEPS, _HARMLESS, np.float32)
    trainer.train(schedule)
    taken: list[float] = []
    while sum(taken) < _SECONDS:
        start = perf_counter()
        trainer.train(schedule)
        taken.append(perf_counter() - start)
    return min(taken) / _STEPS
