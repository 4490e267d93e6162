"""The registered algorithms as test parameters, with settings that make them fast."""

import keras
import numpy as np
import pytest

from executors.contract.assignment import Assignment
from executors.contract.registry import algorithm, algorithms
from executors.structure import analyse
from mistify.costs.axes import costs_of
from mistify.costs.profiles import NominalProfile

layers = keras.layers


def named(names, quick):
    """Return names as parameters; all but the quick ones are marked slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


#: Algorithms that only serve as baselines are never chosen automatically, and are marked slow here.
AUTOMATIC = {name for name, found in algorithms().items() if found.automatic}
ALGORITHMS = named(algorithms(), AUTOMATIC)

#: Algorithms that adapt a network, and those that make networks for single tasks of a source.
ADAPTING = named((name for name, found in algorithms().items() if not found.serves_tasks), AUTOMATIC)
SERVING = named((name for name, found in algorithms().items() if found.serves_tasks), AUTOMATIC)

#: Parameters for tests that take long with every algorithm: all but the fastest algorithm are marked slow.
MOSTLY_SLOW = named((name for name, found in algorithms().items() if not found.serves_tasks), {"morphnet"})

BOARD = NominalProfile("board", 1.0, 0.5)
QUICK = {"adapt_steps": 12, "batch_size": 32}

#: Additional settings that make an algorithm fast.
QUICKER = {
    "adaptivenet": {"distil_steps": 8, "path_steps": 8, "cuts": 1},
    "crowdhmt": {"distil_steps": 8, "path_steps": 8, "cuts": 1},
    "chamnet": {"init_population": 2, "cuts": 1, "samples": 5},
    "nested": {"segment_steps": 12},
    "nnfactory": {"answer_steps": 0, "gate_steps": 8, "encoder": 8, "gaters": 1},
    "random": {"candidates": 4, "cuts": 1},
    "uniform": {"cuts": 1},
}


def assignment(model, training_setup, budget, seed=3, rules=None):
    return Assignment(model, budget, (BOARD,), training_setup, seed, analyse(model, rules))


def quick_params(name):
    """Return settings with which an algorithm takes seconds."""
    return algorithm(name).params(**QUICK, **QUICKER.get(name, {}))


def assert_equal(weights, expected):
    for left, right in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(left, right)


def costs(model):
    """Return the costs of a network, with its latency on the board."""
    return costs_of(analyse(model).network(), [BOARD])


def wide_network():
    """Return a classifier of the digits with enough units for tasks to choose from."""
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((8, 8, 1), name="image")
    for width in (8, 24):
        x = layers.Conv2D(width, 3, activation="relu")(x)
    x = layers.Dense(24, "relu")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(10, "softmax", name="digit")(x))
