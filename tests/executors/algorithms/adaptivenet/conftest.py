"""A residual network with several blocks for the digits, and a barely trained supernet of it."""

import keras
import pytest

from executors.algorithms.adaptivenet.executor import AdaptiveNetExecutor
from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.contract.assignment import Assignment
from executors.contract.preparation import PreparationProgress
from executors.structure import analyse
from executors.training.evaluation import Evaluation
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer, cosine
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS

layers = keras.layers

PARAMS = AdaptiveNetParams(
    largest=0.05, merge=(2,), shrink=(0.5,), distil_steps=120, path_steps=40, batch_size=64
)


def _unit(x, width, stride=1):
    x = layers.Conv2D(width, 3, strides=stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization(momentum=0.9)(x)


def _block(x, width, stride=1):
    y = _unit(layers.ReLU()(_unit(x, width, stride)), width)
    if stride > 1:
        x = layers.Conv2D(width, 1, strides=stride)(x)
    return layers.ReLU()(layers.Add()([x, y]))


def deep_resnet():
    """Return a network with blocks of 8, 8, 8, 16 and 16 channels between a stem and a head."""
    keras.utils.set_random_seed(2)
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU()(_unit(inputs, 8))
    for width, stride in ((8, 1), (8, 1), (8, 1), (16, 2), (16, 1)):
        x = _block(x, width, stride)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(16, 1, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))


@pytest.fixture(scope="session")
def deep(digits):
    """Return the network, trained for a few hundred steps. Tests must not modify it."""
    model = deep_resnet()
    setup = TrainingSetup(*digits, None, TrainingParams(batch_size=64, learning_rate=0.03))
    trainer = Trainer(model, setup, 0)
    trainer.train(cosine(300))
    trainer.apply_average()
    return model


@pytest.fixture(scope="session")
def deep_setup(digits, deep):
    return TrainingSetup(*digits, Evaluation(deep).outputs(digits[0].inputs), TrainingParams(batch_size=64))


@pytest.fixture
def assigned(deep, deep_setup):
    """Return the assignment of an edge with a relative limit on multiply-adds."""
    structure = analyse(deep)
    whole = costs_of(structure.network(), ())[FLOPS]

    def assigned(share, prepared=b"", rules=None):
        source = analyse(deep, rules) if rules else structure
        return Assignment(deep, {FLOPS: share * whole}, (), deep_setup, 3, source, prepared)

    return assigned


@pytest.fixture(scope="session")
def prepared(deep, deep_setup):
    """Return the algorithm's preparation for the network, and its progress."""
    progress = PreparationProgress()
    assignment = Assignment(deep, {FLOPS: 1.0}, (), deep_setup, 3, analyse(deep))
    keras.utils.set_random_seed(3)
    return AdaptiveNetExecutor(PARAMS).prepare(assignment, progress), progress
