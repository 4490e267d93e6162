"""Dilated convolutions become one operator each, with bias and activation, for any batch size."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.package.manifest import fixed_batch_signature
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Runner
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import operators

layers = keras.layers

FIXED = fixed_batch_signature(SIGNATURE)


def images():
    inputs = keras.Input((14, 13, 3), name="x")
    x = layers.Conv2D(4, 3, padding="same", dilation_rate=2, use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2D(4, (3, 2), padding="valid", dilation_rate=(2, 3), activation="relu")(x)
    x = layers.Conv2D(6, 3, padding="same", dilation_rate=(1, 2))(x)
    x = layers.ReLU()(layers.DepthwiseConv2D(3, padding="same", dilation_rate=2)(x))
    return keras.Model(inputs, layers.GlobalAveragePooling2D(name="y")(x))


def steps():
    inputs = keras.Input((17, 3), name="x")
    x = layers.Conv1D(4, 3, padding="same", dilation_rate=2, activation="relu")(inputs)
    x = layers.Conv1D(4, 2, padding="causal", dilation_rate=4, activation="relu")(x)
    return keras.Model(inputs, layers.GlobalAveragePooling1D(name="y")(x))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (images, ["CONV_2D", "CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "MEAN"]),
        (steps, ["CONV_2D", "CONV_2D", "MEAN"]),
    ],
)
def test_each_dilated_convolution_is_one_operator(make, expected):
    model = randomised(make())
    converted = convert(model)
    moved = {"PAD", "RESHAPE", "EXPAND_DIMS", "SQUEEZE", "SHAPE", "STRIDED_SLICE", "PACK"}
    assert [name for name, _ in operators(converted) if name not in moved] == expected
    x = np.random.default_rng(0).normal(size=(5, *model.inputs[0].shape[1:])).astype(np.float32)
    wanted = np.asarray(model(x))
    np.testing.assert_allclose(Runner(converted)({"x": x})["y"], wanted, atol=1e-5)
    np.testing.assert_allclose(Runner(converted, FIXED)({"x": x[:1]})["y"], wanted[:1], atol=1e-5)


def test_int8_outputs_are_close_to_the_model():
    model = randomised(images())
    x = np.random.default_rng(0).normal(size=(30, 14, 13, 3)).astype(np.float32)
    converted = convert(model, QuantizationConfig.model_validate("int8"), {"x": x})
    assert "SPACE_TO_BATCH_ND" not in {name for name, _ in operators(converted)}
    wanted = np.asarray(model(x))
    assert np.abs(Runner(converted)({"x": x})["y"] - wanted).max() < 0.05 * np.ptp(wanted)
