"""Networks, and data for their inputs."""

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from tests.mistify_server.worker.adaptation.machines import dense_network, examples


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return dense_network()


@pytest.fixture(scope="module")
def data() -> Dataset:
    return examples(0)


@pytest.fixture(scope="module")
def source() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((16,), name="x")
    return keras.Model(inputs, keras.layers.Dense(4, "softmax", name="scores")(inputs))


@pytest.fixture(scope="module")
def training_setup(source: keras.Model) -> TrainingSetup:
    """Return test and training data on which the source is 75% and 100% accurate, respectively."""
    train, test = (np.random.default_rng(seed).normal(size=(40, 16)).astype(np.float32) for seed in (1, 0))
    known, right = (source.predict(rows, verbose=0).argmax(axis=1) for rows in (train, test))
    wrong = np.arange(40) % 4 == 0
    return TrainingSetup(
        Dataset({"x": train}, {"scores": known}),
        Dataset({"x": test}, {"scores": (right + wrong) % 4}),
        None,
        TrainingParams(batch_size=8, learning_rate=1e-3, distillation=0.0),
    )
