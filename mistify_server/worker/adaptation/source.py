"""The root of a goal tree: the source tuned on the data, and widened where goals ask for it (paper 4.3)."""

from collections.abc import Callable, Mapping
from typing import Final

import keras
import numpy as np

from executors.structure import Structure, copied, widen, widened
from executors.training.augmentation import recognises
from executors.training.evaluation import evaluate, recalibrate
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.dataset import Augmentation, generated_count
from mistify.costs.axes import costs_of
from mistify.costs.profiles import Profile
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.adaptation.tuning import tune

#: How far a source is widened at most, as a multiple of its widths: four times its multiply-adds.
_MAX_WIDENING = 2.0
_WIDENING_STEPS = 64

#: Changes of images that add nothing to the time of a training step.
FLIPS: Final = Augmentation(flip=True)


def flips_suit(source: keras.Model, data: DataSource, setup: TrainingSetup) -> bool:
    """Check whether images are to be flipped where a config leaves that open: the source does not mind.

    Generated inputs come from the source's knowledge of unflipped images, and a source of several tasks
    answers none before it is trained.

    Args:
        data: Training and validation data as in the config.
        setup: The same data, loaded.
    """
    settings = data.settings
    if settings.augment is not None or settings.tasks is not None or generated_count(data.train or ""):
        return False
    return recognises(source, setup.validation, setup.metric, FLIPS)


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
