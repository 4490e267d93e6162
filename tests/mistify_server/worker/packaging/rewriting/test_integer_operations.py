"""Operations without integer kernels, in int8."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.flatbuffer import operators
from mistify_server.worker.packaging.tflite.runner import Runner

layers, ops = keras.layers, keras.ops

INT8 = QuantizationConfig.model_validate("int8")


def rows(count, seed=0):
    """Return positions with a large common part, from which layer norms have to separate the rest."""
    rng = np.random.default_rng(seed)
    return {"x": (rng.normal(size=(count, 4, 16)) + rng.normal(3, 1, (count, 4, 1))).astype(np.float32)}


def network(operation):
    inputs = keras.Input((4, 16), name="x")
    return keras.Model(inputs, layers.Identity(name="y")(operation(inputs)))


def weighted(**options):
    norm = layers.LayerNormalization(epsilon=1e-5, **options)
    norm.build((None, 4, 16))
    rng = np.random.default_rng(0)
    norm.set_weights([rng.uniform(0.5, 1.5, 16) for _ in norm.weights])
    return norm


OPERATIONS = {
    "layer norm": weighted,
    "layer norm without offset": lambda: weighted(center=False),
    "layer norm without scale": lambda: weighted(scale=False),
    "plain layer norm": lambda: weighted(center=False, scale=False),
    "square": lambda: ops.square,
    "root mean square norm": layers.RMSNormalization,
    "another mean": lambda: lambda x: x * 0.5 - ops.mean(2 * x, -1, keepdims=True) * 0.5,
    "unit norm": layers.UnitNormalization,
    "gelu": lambda: layers.Activation("gelu"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_integers_agree_with_keras_without_floats(name):
    model = network(OPERATIONS[name]())
    made = convert(model, INT8, rows(200))
    floats = {
        operator.name
        for operator in operators(made)
        if {each.type for each in operator.outputs} == {"FLOAT32"}
    }
    assert floats <= {"DEQUANTIZE"}
    expected = np.asarray(model(rows(40, 1)["x"]))
    difference = np.abs(Runner(made)(rows(40, 1))["y"] - expected)
    assert difference.max() < 0.1 * np.ptp(expected)
    assert difference.mean() < 0.01 * np.ptp(expected)


def test_floats_are_converted_as_they_are():
    kinds = {operator.name for operator in operators(convert(network(weighted())))}
    assert "NEG" in kinds
