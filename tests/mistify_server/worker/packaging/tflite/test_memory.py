"""The memory of a file, compared with sizes computed by hand."""

from pathlib import Path

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.file_costs import stored_costs
from mistify_server.worker.packaging.tflite.memory import memory_bytes
from tests.executors.structure.networks import randomised

layers = keras.layers

DATA = Path(__file__).parents[4] / "data"

#: Numbers of weights in the kernel [3, 3, 3, 2, 24] and in that of the dense layer.
VOLUME, DENSE = 27 * 2 * 24, 24 * 2
#: Number of elements that the convolution writes and its ReLU reads.
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
        # Only the ReLU has an int8 kernel for volumes; a kernel with fewer than 1,024 weights stays float32.
        (Quantization.DYNAMIC, 4 * (VOLUME + DENSE), 4 * 2 * MADE),
        (Quantization.INT8, 4 * VOLUME + DENSE, (4 + 1) * MADE),
    ],
)
def test_a_kernel_counts_in_its_stored_precision(precision: Quantization, weights: int, alive: int) -> None:
    examples = {"volume": np.random.default_rng(0).normal(size=(8, 6, 6, 6, 2)).astype(np.float32)}
    network = convert(over_volumes(), QuantizationConfig(precision=precision), examples)
    biases = 4 * (24 + 2)
    assert memory_bytes(network) == pytest.approx(weights + biases + alive, rel=0.02)


@pytest.mark.parametrize(
    ("inputs", "axis"), [("float32", "memory_bytes@int8"), ("int8", "memory_bytes@int8-inputs")]
)
def test_the_axis_of_memory_depends_on_the_types_of_inputs(inputs: str, axis: str) -> None:
    network = (DATA / "exits_int8" / "serve.tflite").read_bytes()
    quantization = QuantizationConfig.model_validate({"precision": "int8", "inputs": inputs})
    costs = stored_costs(network, quantization)
    assert set(costs) == {axis, "size_bytes@int8"}
    assert costs[axis] == memory_bytes(network)
