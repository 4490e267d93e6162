"""Optimizers for training, and the choice of a suitable one."""

from typing import Final

import keras

from executors.structure.keras_internals import all_layers
from executors.training.params import TrainingParams

layers = keras.layers

SGD: Final = "sgd"
ADAM: Final = "adam"
_AUTO: Final = "auto"

#: Learning rates that suit most networks.
_RATES: Final = {SGD: 0.01, ADAM: 2e-3}

_MOMENTUM: Final = 0.9
_WEIGHT_DECAY: Final = 5e-4


def optimizer_of(model: keras.Model, params: TrainingParams) -> str:
    """Return the name of the optimizer for a network.

    The learning rate of gradient descent suits networks with batch norms. With it, convolutional networks
    with other norms, or without any, fall as far as to chance level; with Adam they lose nothing.
    """
    if params.optimizer != _AUTO:
        return params.optimizer
    return SGD if params.learning_rate is not None or _has_batch_norms(model) else ADAM


def highest_rate(optimizer: str, params: TrainingParams) -> float:
    """Return the highest learning rate from the settings, or else the optimizer's default."""
    return _RATES[optimizer] if params.learning_rate is None else params.learning_rate


def rate_for_adam(params: TrainingParams, usual: float) -> float:
    """Return the highest learning rate of a stage that is always trained with Adam.

    A learning rate in the settings is meant for their optimizer: one that suits gradient descent ruins a
    network with Adam.

    Args:
        usual: The rate for this stage unless the settings choose Adam and a rate.
    """
    return params.learning_rate if params.optimizer == ADAM and params.learning_rate is not None else usual


def make_optimizer(name: str, rate: float) -> keras.optimizers.Optimizer:
    """Return an optimizer with a learning rate."""
    if name == ADAM:
        return keras.optimizers.Adam(rate)
    return keras.optimizers.SGD(rate, _MOMENTUM, nesterov=True, weight_decay=_WEIGHT_DECAY)


def _has_batch_norms(model: keras.Model) -> bool:
    return any(isinstance(layer, layers.BatchNormalization) for layer in all_layers(model))
