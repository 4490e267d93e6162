"""Running and timing converted networks."""

import os

import keras
import numpy as np
import pytest

from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.latency import measure_latency
from mistify_server.worker.packaging.tflite import runner as runners
from mistify_server.worker.packaging.tflite.isolation import LiteRtError, in_litert
from mistify_server.worker.packaging.tflite.runner import Runner, run_network
from tests.mistify_server.worker.packaging.networks import network
from tests.support.ending import end
from tests.support.paths import DATA


@pytest.fixture(scope="module")
def converted():
    return convert(network())


def test_inputs_and_outputs_match_the_model(converted):
    runner = Runner(converted)
    taken, value = runner.inputs["image"], runner.outputs["scores"]
    assert (taken.name, taken.dtype, taken.shape) == ("image", "float32", (-1, 8, 8, 2))
    assert (value.name, value.dtype, value.shape) == ("scores", "float32", (-1, 3))


def test_integer_inputs_are_supported(converted):
    pixels = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 2), np.uint8)
    actual = run_network(converted, {"image": pixels})["scores"]
    np.testing.assert_array_equal(
        actual, run_network(converted, {"image": pixels.astype(np.float32)})["scores"]
    )


@pytest.mark.parametrize("batch", [1, 2])
def test_latency_is_returned_with_its_conditions(converted, batch):
    latency = measure_latency(converted, batch=batch)
    assert 0 < latency.median_ms <= latency.p95_ms < 1000
    assert latency.runs >= 10
    assert latency.threads == 1
    assert len(latency.machine.split()) > 1
    assert latency.runtime.startswith("ai-edge-litert ")


def test_batches_are_smaller_if_tensors_are_large(converted):
    inputs = keras.Input((256, 256, 3), name="image")
    x = keras.layers.Conv2D(64, 3, padding="same", name="wide")(inputs)
    dense = keras.layers.Dense(3, name="scores")(keras.layers.GlobalAveragePooling2D()(x))
    runner = Runner(convert(keras.Model(inputs, dense)))
    assert 8 <= runner.examples_at_once(250) <= 2**27 // (256 * 256 * 64)
    assert Runner(converted).examples_at_once(250) == 250


@pytest.mark.parametrize("signature", ["serving_default", "branch_2"])
def test_tensors_of_branches_count_for_the_batch_size(signature):
    """The first graph has a 4 x 4 image, and each branch has four channels of that size."""
    runner = Runner((DATA / "tiny_branches.tflite").read_bytes(), signature)
    assert runner.examples_at_once(2**27) == 2**27 // (4 * 4 * 4)


def test_a_network_that_crashes_litert_is_refused_and_others_still_run(monkeypatch):
    runner = Runner((DATA / "tiny.tflite").read_bytes())
    examples = {name: np.zeros((2, *info.shape[1:]), info.dtype) for name, info in runner.inputs.items()}
    before = runner(examples)
    with monkeypatch.context() as patched:
        patched.setattr(runners, "run", end)
        with pytest.raises(LiteRtError, match="SIGABRT"):
            runner(examples)
    for name, output in runner(examples).items():
        np.testing.assert_array_equal(output, before[name])


def test_networks_run_without_tensorflow(converted):
    run_network(converted, {"image": np.zeros((1, 8, 8, 2), np.float32)})
    assert in_litert(os.getpid) != os.getpid()
    assert not in_litert(eval, "'tensorflow' in __import__('sys').modules")
