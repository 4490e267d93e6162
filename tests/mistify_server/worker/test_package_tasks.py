"""Packages of several goals of one source, made by one worker."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.structure import Structure, analyse, narrow
from mistify.jobs.package_spec import PackageSpec
from mistify.tflite.session import Session
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.runner import TaskRunner
from tests.executors.structure.networks import randomised
from tests.mistify_server.digits_tasks import shallow, taught


def narrowed(structure: Structure, units: int) -> keras.Model:
    """A network with this number of channels, with weights of its own."""
    keep = {name: np.arange(size) < units for name, size in structure.widths.items()}
    return randomised(narrow(structure, keep), units)


def test_goals_that_share_a_conversion_are_packaged_without_another_one(tmp_path, monkeypatch):
    artifacts = artifacts_of(tmp_path)
    checkpoints, runner = Checkpoints(artifacts), TaskRunner(artifacts, lambda progress: None)
    teacher = checkpoints.save(randomised(shallow()))
    structure = analyse(checkpoints.load(teacher))

    def network_of(model: keras.Model, *, shares: bool = True) -> bytes:
        done: Any = runner.run(
            PackageTask(
                recipe=taught(teacher),
                checkpoint=checkpoints.save(model),
                job_id="job",
                goal_id="goal",
                spec=PackageSpec({}),
                costs={},
                accuracy=0.5,
                shares_conversion=shares,
            )
        )
        return artifacts.path(done.files["serve.tflite"]).read_bytes()

    def fail(*_: object) -> None:
        raise AssertionError("something was converted")

    network_of(narrowed(structure, 7))
    monkeypatch.setattr(tf.lite.TFLiteConverter, "from_saved_model", fail)
    for units in (5, 8, 1):
        model = narrowed(structure, units)
        images = np.random.default_rng(units).normal(size=(5, 8, 8, 1)).astype(np.float32)
        session = Session(network_of(model), threads=1)
        ((_, outputs),) = session({next(iter(session.inputs)): images}).items()
        np.testing.assert_allclose(outputs, np.asarray(model(images)), atol=1e-5)
    with pytest.raises(AssertionError, match="something was converted"):
        network_of(narrowed(structure, 5), shares=False)
