"""A network, and data for its inputs."""

import keras
import pytest

from executors.data import Dataset
from tests.mistify_server.worker.adaptation.machines import dense_network, examples


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return dense_network()


@pytest.fixture(scope="module")
def data() -> Dataset:
    return examples(0)
