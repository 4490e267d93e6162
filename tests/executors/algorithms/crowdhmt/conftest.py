"""Blocks with random weights, as they occur in networks, and examples of their inputs."""

import keras
import numpy as np
import pytest

from executors.algorithms.adaptivenet.variants import Kind
from executors.data import Dataset
from executors.structure import analyse, model_of

layers = keras.layers


def convolved(x, channels, size, stride=1, name=None):
    x = layers.Conv2D(channels, size, stride, padding="same", use_bias=False, name=name)(x)
    return layers.BatchNormalization()(x)


def residual(stride=1):
    inputs = keras.Input((8, 8, 6), name="features")
    y = layers.ReLU()(convolved(inputs, 8, 3, stride, name="first"))
    y = convolved(y, 6, 3, name="last")
    x = inputs if stride == 1 else convolved(inputs, 6, 1, stride)
    return keras.Model(inputs, layers.ReLU()(layers.Add()([x, y])))


def inverted():
    """Return an inverted residual block, as in MobileNetV2."""
    inputs = keras.Input((8, 8, 6), name="features")
    y = layers.ReLU(6)(convolved(inputs, 24, 1))
    y = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(y)
    y = layers.ReLU(6)(layers.BatchNormalization()(y))
    return keras.Model(inputs, layers.Add()([inputs, convolved(y, 6, 1)]))


def plain():
    inputs = keras.Input((20, 6), name="features")
    x = layers.Conv1D(8, 3, activation="relu", name="first")(inputs)
    return keras.Model(inputs, layers.Conv1D(6, 3, activation="relu", name="last")(x))


def feed_forward():
    inputs = keras.Input((10, 8), name="features")
    x = layers.Dense(32, activation="gelu", name="first")(layers.LayerNormalization()(inputs))
    return keras.Model(inputs, layers.Add()([inputs, layers.Dense(8, name="last")(x)]))


def attention():
    inputs = keras.Input((10, 8), name="features")
    return keras.Model(inputs, layers.Add()([inputs, layers.MultiHeadAttention(2, 4)(inputs, inputs)]))


BLOCKS = {
    "residual": residual,
    "strided": lambda: residual(2),
    "inverted": inverted,
    "plain": plain,
    "feed_forward": feed_forward,
    "attention": attention,
}


def block(name):
    """Return a block with random weights, batch norms as well."""
    keras.utils.set_random_seed(1)
    model = BLOCKS[name]()
    rng = np.random.default_rng(2)
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.set_weights([rng.uniform(0.5, 1.5, weight.shape) for weight in layer.get_weights()])
    return model


def examples(model, count=30):
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(3).standard_normal(shape, np.float32)


@pytest.fixture
def made():
    """Return a function that makes the variant of a block; None if there is none."""

    def made(model, maker, amount, inputs=None):
        features = Dataset({"features": examples(model) if inputs is None else inputs}, {})
        graph = Kind("made", maker, amount, maker.span(amount)).variant([analyse(model)], features)
        return None if graph is None else model_of(graph)

    return made
