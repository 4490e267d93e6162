"""Packages that a device can train, and what becomes of those that it cannot."""

import numpy as np
import pytest

from executors.data import Dataset
from executors.training.objectives import objectives_of
from mistify.config.tuning import TuningConfig
from mistify_server.worker.packaging.conversion import trainable
from mistify_server.worker.packaging.conversion.trainable import convert_trainable
from mistify_server.worker.packaging.tflite.runner import run_network
from tests.mistify_server.worker.packaging.networks import images, network
from tests.paths import DATA


@pytest.mark.sampled
@pytest.mark.parametrize("training", [b"no network", (DATA / "tiny.tflite").read_bytes()])
def test_what_litert_cannot_train_is_packaged_without_training_and_says_why(training, monkeypatch):
    monkeypatch.setattr(trainable, "convert_training", lambda made: training)
    model, examples = network(), {"image": images(3)}
    objectives = objectives_of(model, Dataset(examples, {"scores": np.arange(3)}))
    made = convert_trainable(model, objectives, TuningConfig(trainable="head"), examples)
    assert (made.train, made.training, made.tunable) == (None, None, {})
    assert made.note.startswith("cannot be trained on a device: LiteRT cannot run what trains it: ")
    expected = model.predict(examples["image"], verbose=0)
    np.testing.assert_allclose(run_network(made.serve, examples)["scores"], expected, atol=1e-5)
