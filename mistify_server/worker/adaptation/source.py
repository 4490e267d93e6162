"""The root of a goal tree: the source tuned on the data, and widened where goals ask for it (paper 4.3)."""

from collections.abc import Callable, Mapping

import keras
import numpy as np

from executors.structure import Structure, copied, widen, widened
from executors.training.evaluation import evaluate, recalibrate
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.costs.axes import costs_of
from mistify.costs.profiles import Profile
from mistify_server.worker.adaptation.tuning import tune

#: How far a source is widened at the most, as a multiple of its widths: four times its multiply-adds.
_MAX_WIDENING = 2.0
_WIDENING_STEPS = 64


def tuned_source(
    source: keras.Model, setup: TrainingSetup, steps: int, seed: int, report: Callable[[int], None]
) -> keras.Model:
    """Return the source tuned on the data, or as it came if that is better on the validation data."""
    if not steps:
        return source
    tuned = copied(source)
    tune(Trainer(tuned, setup, seed), steps, report)
    recalibrate(tuned, setup.train, seed)
    reached, before = (evaluate(model, setup.validation, setup.metric) for model in (tuned, source))
    return tuned if setup.metric.better(reached, before) else source


def expanded(
    structure: Structure, exceed: Mapping[str, float], profiles: tuple[Profile, ...], seed: int
) -> keras.Model:
    """Return the model widened by the least factor at which every cost reaches the one to exceed."""
    factor = 1.0
    for factor in np.linspace(1.0, _MAX_WIDENING, _WIDENING_STEPS + 1):
        costs = costs_of(structure.network(widened(structure, float(factor))), profiles)
        if all(costs[axis] >= limit for axis, limit in exceed.items()):
            break
    return widen(structure, float(factor), seed)
