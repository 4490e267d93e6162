"""Running and timing converted networks."""

from itertools import count

import keras
import numpy as np
import pytest

from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement import latency as latency_module
from mistify_server.worker.packaging.measurement.latency import measure_latency
from mistify_server.worker.packaging.tflite.runner import Runner, run_network
from tests.mistify_server.worker.packaging.networks import network
from tests.paths import DATA


@pytest.fixture(scope="module")
def converted():
    return convert(network())


def test_the_tensors_are_those_of_the_model(converted):
    runner = Runner(converted)
    taken, value = runner.inputs["image"], runner.outputs["scores"]
    assert (taken.name, taken.dtype, taken.shape) == ("image", "float32", (-1, 8, 8, 2))
    assert (value.name, value.dtype, value.shape) == ("scores", "float32", (-1, 3))


def test_whole_numbers_will_do(converted):
    pixels = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 2), np.uint8)
    actual = run_network(converted, {"image": pixels})["scores"]
    np.testing.assert_array_equal(
        actual, run_network(converted, {"image": pixels.astype(np.float32)})["scores"]
    )


@pytest.mark.parametrize("batch", [1, 2])
def test_latency_is_measured_with_its_conditions(converted, batch):
    latency = measure_latency(converted, batch=batch)
    assert 0 < latency.median_ms <= latency.p95_ms < 1000
    assert latency.runs >= 10
    assert latency.threads == 1
    assert len(latency.machine.split()) > 1
    assert latency.runtime.startswith("ai-edge-litert ")


BURSTS = [[9.0, 9.0, 9.0], [1.0, 5.0, 6.0], [3.0, 4.0, 30.0], *[[8.0] * 3] * 7]


def test_the_quietest_burst_counts_once_others_come_close(converted, monkeypatch):
    bursts = iter([*BURSTS, [4.1] * 3, [4.2] * 3, [4.11] * 3])
    monkeypatch.setattr(latency_module, "_burst", lambda interpreter: next(bursts))
    latency = measure_latency(converted, clock=count(step=0.1).__next__)
    assert (latency.median_ms, latency.runs) == (4.0, 39)
    assert latency.p95_ms == pytest.approx(27.4)


def test_bursts_that_never_agree_end_all_the_same(converted, monkeypatch):
    bursts = iter(BURSTS)
    monkeypatch.setattr(latency_module, "_burst", lambda interpreter: next(bursts))
    latency = measure_latency(converted, clock=count(step=10).__next__)
    assert (latency.median_ms, latency.runs) == (4.0, 30)


def test_a_spell_of_other_work_does_not_count_though_its_bursts_agree(converted, monkeypatch):
    """Of 40 bursts that take 10 ms each, the first 25 are disturbed."""
    bursts = iter([*[[7.0] * 3] * 25, *[[4.0] * 3] * 15])
    monkeypatch.setattr(latency_module, "_burst", lambda interpreter: next(bursts))
    latency = measure_latency(converted, clock=count(step=0.01).__next__)
    assert (latency.median_ms, latency.runs) == (4.0, 120)


def test_fewer_examples_are_run_at_once_where_tensors_are_large(converted):
    inputs = keras.Input((256, 256, 3), name="image")
    x = keras.layers.Conv2D(64, 3, padding="same", name="wide")(inputs)
    dense = keras.layers.Dense(3, name="scores")(keras.layers.GlobalAveragePooling2D()(x))
    runner = Runner(convert(keras.Model(inputs, dense)))
    assert 8 <= runner.examples_at_once(250) <= 2**27 // (256 * 256 * 64)
    assert Runner(converted).examples_at_once(250) == 250


@pytest.mark.parametrize("signature", ["serving_default", "branch_2"])
def test_tensors_of_branches_count(signature):
    """The first graph has an image of 4 x 4; each branch has four channels of it."""
    runner = Runner((DATA / "tiny_branches.tflite").read_bytes(), signature)
    assert runner.examples_at_once(2**27) == 2**27 // (4 * 4 * 4)
