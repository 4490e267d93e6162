"""Networks of the kinds that have gates, and a small set of tasks that a network learns in seconds."""

import keras
import numpy as np
import pytest

from executors.algorithms.nnfactory.params import NNFactoryParams
from executors.contract.assignment import Assignment
from executors.data import Dataset, split
from executors.structure import analyse, model_of
from executors.training.setup import TrainingSetup
from mistify.scenarios.space import TaskSpace

layers = keras.layers

PARAMS = NNFactoryParams(answer_steps=16, gate_steps=16, batch_size=16, encoder=16, gaters=2)

#: Whether one, or all, of the four places of an image are bright, of those named.
SPACE = TaskSpace.read(
    '{"properties": {"how many": ["any", "all"], "which": ["a", "b", "c", "d"]},'
    ' "names": {"top": ["a", "b"], "bottom": ["c", "d"]},'
    ' "tasks": {"any-a": ["any", "a"], "any-b": ["any", "b"], "any-top": ["any", "top"],'
    ' "all-top": ["all", "top"], "any-bottom": ["any", "bottom"], "all-bottom": ["all", "bottom"],'
    ' "any-ac": ["any", "a", "c"], "all-ac": ["all", "a", "c"], "all-bd": ["all", "b", "d"]}}'
)


def normed(x):
    """A batch norm that shifts and scales, as after training."""
    norm = layers.BatchNormalization(
        beta_initializer=keras.initializers.RandomNormal(stddev=0.3),
        gamma_initializer=keras.initializers.RandomUniform(0.5, 1.5),
        moving_mean_initializer=keras.initializers.RandomNormal(stddev=0.3),
        moving_variance_initializer=keras.initializers.RandomUniform(0.5, 1.5),
    )
    return norm(x)


def residual():
    """A residual block, and a hidden layer with an activation of its own."""
    x = image = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU()(normed(layers.Conv2D(8, 3, padding="same", name="stem")(x)))
    y = layers.ReLU()(normed(layers.Conv2D(24, 3, padding="same", use_bias=False, name="inner")(x)))
    y = normed(layers.Conv2D(8, 3, padding="same", use_bias=False, name="outer")(y))
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([x, y])))
    x = layers.Dense(16, "sigmoid", name="hidden")(x)
    return keras.Model(image, layers.Dense(1, "sigmoid", name="answer")(x))


def inverted():
    """A depthwise convolution in the middle, and a squeeze-and-excite block, as in EfficientNet."""
    x = image = keras.Input((8, 8, 1), name="image")
    x = normed(layers.Conv2D(8, 3, 2, padding="same", name="stem")(x))
    y = layers.Activation("silu")(normed(layers.Conv2D(20, 1, use_bias=False, name="expand")(x)))
    y = layers.Activation("silu")(normed(layers.DepthwiseConv2D(3, padding="same", name="depthwise")(y)))
    s = layers.Reshape((1, 1, 20))(layers.GlobalAveragePooling2D()(y))
    s = layers.Conv2D(6, 1, activation="silu", name="squeeze")(s)
    s = layers.Conv2D(20, 1, activation="sigmoid", name="excite")(s)
    y = normed(layers.Conv2D(8, 1, use_bias=False, name="project")(layers.Multiply()([y, s])))
    x = layers.Flatten()(layers.Add()([x, y]))
    return keras.Model(image, layers.Dense(1, name="answer")(x))


def plain():
    """Convolutions one after the other, flattened in the end."""
    x = image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(6, 3, 2, activation="softplus", name="first")(x)
    x = layers.MaxPooling2D()(layers.Conv2D(30, 2, activation="elu", name="second")(x))
    return keras.Model(image, layers.Dense(1, "sigmoid", name="answer")(layers.Flatten()(x)))


def transformer():
    """Two blocks of attention and a feed-forward layer."""
    x = image = keras.Input((8, 8, 1), name="image")
    x = layers.Reshape((16, 12))(layers.Conv2D(12, 2, 2, name="patches")(x))
    for number in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 6, name=f"attention-{number}")(y, y)])
        y = layers.Dense(24, "gelu", name=f"feed-{number}")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(12, name=f"forward-{number}")(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(image, layers.Dense(1, "sigmoid", name="answer")(x))


NETWORKS = (residual, inverted, plain, transformer)

#: The gated groups of each network, with the units that each has.
GATED = {
    residual: {"inner": 24, "hidden": 16},
    inverted: {"expand": 20, "squeeze": 6},
    plain: {"first": 6, "second": 30},
    transformer: {"feed-0": 24, "feed-1": 24},
}


def made(make):
    """The structure of a network, always with the same random weights."""
    keras.utils.set_random_seed(1)
    return analyse(make())


def images(count, seed=0):
    return np.random.default_rng(seed).random((count, 8, 8, 1), np.float32)


def bright_places(count, seed):
    """Images with some bright places, and the answers to all tasks but `all-bd`."""
    rng = np.random.default_rng(seed)
    places = rng.random((count, 2, 2)) < 0.5
    pictures = np.kron(places, np.ones((4, 4))) + rng.normal(0, 0.2, (count, 8, 8))
    bright = dict(zip("abcd", places.reshape(count, 4).T, strict=True))
    answers = np.stack(
        [
            getattr(np, next(iter(task.values["how many"])))(
                [bright[which] for which in task.values["which"]], axis=0
            )
            for task in SPACE.listed
        ],
        axis=1,
    ).astype(np.int8)
    answers[:, -1] = -1
    inputs = {"image": pictures[..., None].astype(np.float32)}
    return Dataset(inputs, {"answer": answers[:, :1].astype(np.int64)}, answers=answers, space=SPACE)


@pytest.fixture(scope="session")
def setup():
    train, validation = split(bright_places(400, 0), 0.25)
    return TrainingSetup(train, validation, None, PARAMS)


@pytest.fixture(scope="session")
def assigned_once(setup):
    """An assignment of the residual network, without limits. Nobody may change it."""
    source = made(residual)
    return Assignment(model_of(source.graph), {}, (), setup, 3, source)
