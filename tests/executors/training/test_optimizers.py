"""The optimizer is chosen for the network, unless the settings name one."""

import keras
import pytest

from executors.training.optimizers import (
    highest_rate,
    make_optimizer,
    optimizer_of,
    rate_for_adam,
)
from executors.training.params import TrainingParams

layers = keras.layers


class Block(layers.Layer):
    """A composite layer, like those of keras_hub."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = layers.BatchNormalization()

    def call(self, x):
        return self.norm(x)


def network(*inner: layers.Layer) -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, activation="relu")(inputs)
    for layer in inner:
        x = layer(x)
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(x)))


def chosen(model: keras.Model, params: TrainingParams) -> tuple[str, float]:
    name = optimizer_of(model, params)
    return name, highest_rate(name, params)


def nested() -> keras.Model:
    image = keras.Input((6, 6, 4))
    return keras.Model(image, layers.BatchNormalization()(image))


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ((), ("adam", 2e-3)),
        ((layers.BatchNormalization(),), ("sgd", 0.01)),
        ((layers.LayerNormalization(),), ("adam", 2e-3)),
        ((layers.GroupNormalization(2),), ("adam", 2e-3)),
        ((Block(),), ("sgd", 0.01)),
        ((nested(),), ("sgd", 0.01)),
    ],
)
def test_networks_without_batch_norms_are_trained_with_adam(inner, expected):
    assert chosen(network(*inner), TrainingParams()) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"learning_rate": 0.05}, ("sgd", 0.05)),
        ({"optimizer": "sgd"}, ("sgd", 0.01)),
        ({"optimizer": "adam", "learning_rate": 0.001}, ("adam", 0.001)),
    ],
)
def test_settings_take_precedence(settings, expected):
    assert chosen(network(), TrainingParams(**settings)) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 0.001),
        ({"learning_rate": 0.05}, 0.001),
        ({"optimizer": "sgd", "learning_rate": 0.05}, 0.001),
        ({"optimizer": "adam"}, 0.001),
        ({"optimizer": "adam", "learning_rate": 0.003}, 0.003),
    ],
)
def test_a_learning_rate_for_gradient_descent_is_not_used_with_adam(settings, expected):
    assert rate_for_adam(TrainingParams(**settings), 0.001) == expected


def test_gradient_descent_has_momentum_and_weight_decay():
    made = make_optimizer("sgd", 0.1)
    assert (made.momentum, made.nesterov, made.weight_decay) == (0.9, True, 5e-4)
