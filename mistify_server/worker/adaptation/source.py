"""The root of a goal tree: the source, tuned on the data and widened if goals need it (paper 4.3)."""

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

#: Maximum factor by which a source's widths grow: four times its multiply-adds.
_MAX_WIDENING = 2.0
_WIDENING_STEPS = 64

#: Augmentation that does not lengthen a training step.
FLIPS: Final = Augmentation(flip=True)


def flips_suit(source: keras.Model, data: DataSource, setup: TrainingSetup) -> bool:
    """Check whether to flip images if a config leaves that open: flips must not hurt the source.

    Generated inputs are never flipped, because they reflect the source's knowledge of unflipped images. The
    same applies to a source of several tasks, which answers none of them before it is trained.

    Args:
        data: Training and validation data in the config.
        setup: Training setup with the loaded data.
    """
    settings = data.settings
    if settings.augment is not None or settings.tasks is not None or generated_count(data.train or ""):
        return False
    return recognises(source, setup.validation, setup.metric, FLIPS)


def tuned_source(
    source: keras.Model, setup: TrainingSetup, steps: int, seed: int, report: Callable[[int], None]
) -> keras.Model:
    """Return the source after tuning, or the original unless that is worse on the validation data."""
    if not steps:
        return source
    before = evaluate(source, setup.validation, setup.metric)
    if setup.metric.reaches(before, setup.metric.perfect):
        return source
    tuned = copied(source)
    tune(Trainer(tuned, setup, seed), steps, report)
    recalibrate(tuned, setup.train, seed)
    reached = evaluate(tuned, setup.validation, setup.metric)
    return tuned if setup.metric.better(reached, before) else source


def expanded(
    structure: Structure, exceed: Mapping[str, float], profiles: tuple[Profile, ...], seed: int
) -> keras.Model:
    """Return the model widened by the smallest factor at which every cost reaches its required value."""
    factor = 1.0
    for factor in np.linspace(1.0, _MAX_WIDENING, _WIDENING_STEPS + 1):
        costs = costs_of(structure.network(widened(structure, float(factor))), profiles)
        if all(costs[axis] >= limit for axis, limit in exceed.items()):
            break
    return widen(structure, float(factor), seed)
