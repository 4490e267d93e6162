"""The trainer for compressed networks."""

from collections.abc import Callable
from dataclasses import replace

import keras

from executors.training.objective import TrainingObjective
from executors.training.optimizers import ADAM
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer


def compressing_trainer(
    model: keras.Model,
    setup: TrainingSetup,
    seed: int,
    rate: float,
    *,
    objective: TrainingObjective | None = None,
    after_step: Callable[[], None] | None = None,
) -> Trainer:
    """Return a trainer with Adam, regardless of the optimizer in the settings.

    Args:
        model: A network, changed in place.
        setup: The training data, and the teacher's predictions for them.
        seed: Seed for the order of the examples.
        rate: The highest learning rate.
        objective: None for a `SupervisedObjective`.
        after_step: Called after every update.
    """
    params = setup.params.model_copy(update={"optimizer": ADAM, "learning_rate": rate})
    return Trainer(model, replace(setup, params=params), seed, after_step=after_step, objective=objective)
