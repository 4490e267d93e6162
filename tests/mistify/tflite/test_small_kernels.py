"""Small kernels in float32, in networks of which only weights are integers."""

from functools import cache

import keras
import numpy as np

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.tflite.combining import read_network
from mistify.tflite.session import Session
from mistify.tflite.small_kernels import with_float_kernels
from mistify_server.worker.packaging.conversion.converter import convert
from tests.executors.structure.networks import randomised

layers = keras.layers


@cache
def converted(precision: Quantization, width: int = 24) -> bytes:
    """Two convolutions of 1,728 and 3,456 weights, and a layer of 1,152 neurons."""
    x = image = keras.Input((6, 6, 8), name="image")
    x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(16, 3, strides=3, activation="relu")(x)
    x = layers.Dense(18, activation="relu")(layers.Flatten()(x))
    model = randomised(keras.Model(image, layers.Dense(3, name="scores")(x)))
    return convert(model, QuantizationConfig(precision=precision))


def answers(network: bytes) -> np.ndarray:
    images = np.random.default_rng(0).normal(size=(5, 6, 6, 8)).astype(np.float32)
    return Session(network, threads=1)({"image": images})["scores"]


def integer_kernels(network: bytes) -> list[int]:
    """The number of weights of each kernel in int8, in both graphs."""
    model = read_network(network)
    return sorted(
        int(np.prod(tensor.shape))
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.type == 9 and model.buffers[tensor.buffer].data is not None
    )


def test_small_kernels_are_those_of_float32() -> None:
    dynamic, floats = converted(Quantization.DYNAMIC), converted(Quantization.NONE)
    assert integer_kernels(dynamic) == [1152, 1152, 1728, 1728, 3456, 3456]
    assert integer_kernels(with_float_kernels(dynamic, floats, 1729)) == [3456, 3456]
    all_floats = with_float_kernels(dynamic, floats, 4000)
    assert not integer_kernels(all_floats)
    np.testing.assert_allclose(answers(all_floats), answers(floats), rtol=1e-6)
    assert np.abs(answers(dynamic) - answers(floats)).max() > 1e-3
    np.testing.assert_array_equal(answers(with_float_kernels(dynamic, floats, 0)), answers(dynamic))


def test_networks_that_compute_with_integers_stay_as_they_are() -> None:
    model = keras.Sequential([keras.Input((8,), name="x"), layers.Dense(4, name="scores")])
    examples = {"x": np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32)}
    int8 = convert(model, QuantizationConfig(precision=Quantization.INT8), examples)
    kept = with_float_kernels(int8, convert(model), 4000)
    run = [Session(network, threads=1)(examples)["scores"] for network in (int8, kept)]
    np.testing.assert_array_equal(*run)


def test_nothing_is_taken_from_another_network() -> None:
    dynamic = converted(Quantization.DYNAMIC)
    kept = with_float_kernels(dynamic, converted(Quantization.NONE, 12), 4000)
    np.testing.assert_array_equal(answers(kept), answers(dynamic))
