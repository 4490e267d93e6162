"""The memory of a file, against the sizes of a network that is written down by hand."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.memory import memory_bytes
from tests.executors.structure.networks import randomised

layers = keras.layers

#: Weights of the kernel [3, 3, 3, 2, 24], and of that of the dense layer.
VOLUME, DENSE = 27 * 2 * 24, 24 * 2
#: Numbers of what the convolution writes, which its ReLU reads.
MADE = 4 * 4 * 4 * 24


def over_volumes() -> keras.Model:
    inputs = keras.Input((6, 6, 6, 2), name="volume")
    x = layers.GlobalAveragePooling3D()(layers.Conv3D(24, 3, activation="relu")(inputs))
    return randomised(keras.Model(inputs, layers.Dense(2)(x)))


@pytest.mark.parametrize(
    ("precision", "weights", "alive"),
    [
        (Quantization.NONE, 4 * (VOLUME + DENSE), 4 * 2 * MADE),
        (Quantization.FLOAT16, 2 * (VOLUME + DENSE), 4 * 2 * MADE),
        # There is no integer kernel for volumes, only a ReLU; a kernel below 1,024 weights stays as it is.
        (Quantization.DYNAMIC, 4 * (VOLUME + DENSE), 4 * 2 * MADE),
        (Quantization.INT8, 4 * VOLUME + DENSE, (4 + 1) * MADE),
    ],
)
def test_a_kernel_counts_as_it_is_stored(precision: Quantization, weights: int, alive: int) -> None:
    examples = {"volume": np.random.default_rng(0).normal(size=(8, 6, 6, 6, 2)).astype(np.float32)}
    network = convert(over_volumes(), QuantizationConfig(precision=precision), examples)
    biases = 4 * (24 + 2)
    assert memory_bytes(network) == pytest.approx(weights + biases + alive, rel=0.02)
