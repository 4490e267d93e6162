"""Packages that a device can train, and those that it cannot."""

import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset
from executors.outputs.objectives import objectives_of
from executors.structure.exporting import NamedFunction, constant
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.package.training import INFER
from mistify_server.worker.packaging.conversion import trainable
from mistify_server.worker.packaging.conversion.converter import convert_saved, save_functions
from mistify_server.worker.packaging.conversion.trainable import convert_trainable
from mistify_server.worker.packaging.tflite import runner
from mistify_server.worker.packaging.tflite.runner import Runner, run_network
from tests.mistify_server.worker.packaging.networks import images, network
from tests.support.paths import DATA


@pytest.mark.sampled
@pytest.mark.parametrize("training", [b"no network", (DATA / "tiny.tflite").read_bytes()])
def test_a_network_that_litert_cannot_train_is_packaged_without_training_with_the_reason(
    training, monkeypatch
):
    monkeypatch.setattr(trainable, "convert_training", lambda made: training)
    model, examples = network(), {"image": images(3)}
    objectives = objectives_of(model, Dataset(examples, {"scores": np.arange(3)}))
    made = convert_trainable(model, objectives, TuningConfig(trainable="head"), examples)
    assert (made.train, made.training, made.tunable) == (None, None, {})
    assert made.note.startswith("cannot be trained on a device: LiteRT cannot run the training network: ")
    expected = model.predict(examples["image"], verbose=0)
    np.testing.assert_allclose(run_network(made.serve, examples)["scores"], expected, atol=1e-5)


def test_both_networks_are_compared_on_as_many_examples_as_fit_into_memory(monkeypatch, tmp_path):
    """The training network holds eight copies of the image with 8 * 8 * 2 elements at once."""
    model, examples, at_once = network(), {"image": images(5)}, []
    forward = constant(model)
    infer = NamedFunction.like(model, lambda image: forward(tf.concat([image] * 8, -1)[..., -2:]))
    save_functions({INFER: infer}, str(tmp_path))
    training = convert_saved(str(tmp_path), QuantizationConfig(), None)
    call = Runner.__call__

    def counting(network, inputs):
        at_once.append(len(inputs["image"]))
        return call(network, inputs)

    monkeypatch.setattr(trainable, "convert_training", lambda made: training)
    monkeypatch.setattr(runner, "_MOST_ELEMENTS", 2 * 8 * 8 * 8 * 2)
    monkeypatch.setattr(Runner, "__call__", counting)
    objectives = objectives_of(model, Dataset(examples, {"scores": np.arange(5) % 3}))
    made = convert_trainable(model, objectives, TuningConfig(trainable="head"), examples)
    assert made.train == training
    assert at_once == [2, 2]
