"""Checkpoints: equal networks give equal files, and damaged files are refused."""

import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from executors.structure.keras_internals import seed_states
from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.artifacts import Artifacts
from mistify_server.worker.checkpoints import Checkpoints

layers = keras.layers


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return Artifacts(tmp_path)


def with_dropout() -> keras.Model:
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.5)(inputs)))


def test_equal_networks_give_equal_files_whenever_they_were_made(artifacts: Artifacts) -> None:
    checkpoints, model = Checkpoints(artifacts), with_dropout()
    first = checkpoints.save(model)
    for state in seed_states(model):  # as after training, or after loading it again
        state.assign([7, 7])
    assert checkpoints.save(model) == first
    with zipfile.ZipFile(artifacts.path(first)) as parts:
        assert {part.date_time for part in parts.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert b"202" not in parts.read("metadata.json").replace(keras.__version__.encode(), b"")


def test_a_checkpoint_restores_the_saved_network(artifacts: Artifacts) -> None:
    checkpoints, model = Checkpoints(artifacts), with_dropout()
    inputs = np.ones((3, 4), np.float32)
    loaded = checkpoints.load(checkpoints.save(model))
    np.testing.assert_array_equal(loaded(inputs), model(inputs))


def test_a_damaged_checkpoint_is_reported(artifacts: Artifacts) -> None:
    checkpoints, model = Checkpoints(artifacts), with_dropout()
    name = checkpoints.save(model)
    content = artifacts.path(name).read_bytes()
    artifacts.path(name).write_bytes(content[:-10])
    with pytest.raises(MistifyError, match=f"{name} is damaged") as raised:
        checkpoints.load(name)
    assert raised.value.code is ErrorCode.CORRUPT_PACKAGE
    assert checkpoints.save(model) == name
    assert checkpoints.load(name).count_params() == 10


def test_a_worker_keeps_the_network_that_it_has_just_saved(artifacts: Artifacts) -> None:
    checkpoints, model = Checkpoints(artifacts), with_dropout()
    name = checkpoints.save(model)
    assert checkpoints.shared(name) is model
    assert checkpoints.load(name) is not model
    assert Checkpoints(artifacts).shared(name) is not model
