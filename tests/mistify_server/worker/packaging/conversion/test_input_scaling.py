"""Inputs whose features have ranges of their own, in networks of integers."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.flatbuffer import operators
from mistify_server.worker.packaging.tflite.runner import Runner

layers = keras.layers

INT8 = QuantizationConfig.model_validate("int8")

#: Deviations of the features: with one scale for all, the integers of the small ones are all zero.
RANGES = np.array([1e-3, 0.1, 5.0, 2e3], np.float32)


def features(count, seed=0):
    """Return features around a mean that is as large as their deviation."""
    values = np.random.default_rng(seed).normal(1.0, 1.0, (count, len(RANGES)))
    return (RANGES * values).astype(np.float32)


def normalized(inputs):
    return layers.Normalization(mean=RANGES, variance=RANGES**2)(inputs)


def rescaled(inputs):
    return layers.Rescaling((1 / RANGES).tolist(), offset=[-1.0] * len(RANGES))(inputs)


def batch_normalized(inputs):
    """Return what a first batch norm does, which learns the ranges instead of measuring them."""
    layer = layers.BatchNormalization()
    outputs = layer(inputs)
    layer.set_weights([np.ones_like(RANGES), np.zeros_like(RANGES), RANGES, RANGES**2])
    return outputs


def network(first, inputs=None):
    """Return a network that needs all features equally."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input(RANGES.shape, name="x") if inputs is None else inputs
    hidden = layers.Dense(16, "relu", kernel_initializer="glorot_normal")(first(inputs))
    return keras.Model(inputs, layers.Dense(3, name="y")(hidden))


def in_floats(converted):
    """Return the names of the operators that compute floats."""
    return [
        operator.name
        for operator in operators(converted)
        if operator.name not in ("QUANTIZE", "DEQUANTIZE") and operator.outputs[0].type == "FLOAT32"
    ]


@pytest.mark.parametrize(
    ("first", "kept"),
    [(normalized, ["SUB", "MUL"]), (rescaled, ["MUL", "ADD"]), (batch_normalized, ["MUL", "ADD"])],
)
def test_small_features_are_not_lost(first, kept):
    model = network(first)
    converted = convert(model, INT8, {"x": features(200)})
    shown = features(50, seed=1)
    expected = np.asarray(model(shown))
    error = np.abs(Runner(converted)({"x": shown})["y"] - expected).max()
    assert error < 0.05 * np.ptp(expected)
    assert in_floats(converted) == kept


def test_what_mixes_features_is_in_integers():
    mixed = network(lambda inputs: normalized(layers.Dense(4, use_bias=False)(inputs)))
    assert in_floats(convert(mixed, INT8, {"x": features(200)})) == []


def test_an_input_that_is_read_unscaled_as_well_is_an_integer():
    model = network(lambda inputs: layers.Concatenate()([inputs, normalized(inputs)]))
    assert in_floats(convert(model, INT8, {"x": features(200)})) == []


def test_pixels_are_integers():
    """Their channels have nearly the same deviation."""
    image = keras.Input((8, 8, 3), name="x")

    def first(inputs):
        scaled = layers.Normalization(mean=[124, 116, 104], variance=[3364, 3136, 3249])(inputs)
        return layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(scaled))

    pixels = np.random.default_rng(0).integers(0, 256, (100, 8, 8, 3)).astype(np.float32)
    assert in_floats(convert(network(first, image), INT8, {"x": pixels})) == []


def test_integers_as_inputs_are_scaled_as_integers():
    quantization = QuantizationConfig.model_validate({"precision": "int8", "inputs": "int8"})
    assert in_floats(convert(network(normalized), quantization, {"x": features(200)})) == []
