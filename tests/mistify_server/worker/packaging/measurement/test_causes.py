"""Causes of accuracy loss at a precision: the responsible layer is named with its values."""

import keras
import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.causes import cause_of_loss, largest_scale
from mistify_server.worker.packaging.measurement.package import _runnable
from mistify_server.worker.packaging.tflite.isolation import LiteRtError
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import network

layers = keras.layers


def joined(ratio):
    """Return two concatenated branches with ranges that differ by a ratio."""
    inputs = keras.Input((4,), name="x")
    large = layers.Dense(3, name="large")(inputs)
    small = layers.Dense(3, name="small")(inputs)
    both = layers.Concatenate(name="both")([large, small])
    model = randomised(keras.Model(inputs, layers.Dense(2, name="y")(both)))
    kernel, bias = model.get_layer("small").get_weights()
    model.get_layer("large").set_weights([ratio * kernel, ratio * bias])
    return model


def cause(model, precision):
    x = np.random.default_rng(0).normal(size=(50, *model.inputs[0].shape[1:])).astype(np.float32)
    inputs = {model.inputs[0].name: x}
    return cause_of_loss(precision, convert(model), inputs, [layer.name for layer in model.layers])


@pytest.mark.parametrize("precision", [Quantization.INT8, Quantization.INT8_QAT])
def test_a_branch_with_a_small_range_is_named_with_the_one_that_dominates_the_scale(precision):
    reason = cause(joined(1020), precision)
    assert "layer large ranges over" in reason
    assert "which leaves 0.25 of 255 steps for the" in reason
    assert "of layer small" in reason


def test_branches_with_similar_ranges_are_not_a_cause():
    assert cause(joined(3), Quantization.INT8) == ""
    assert cause(network(), Quantization.INT8) == ""


def test_weights_beyond_float16_are_named_with_their_layer():
    model = joined(1)
    kernel, bias = model.get_layer("large").get_weights()
    kernel[1, 2] = -2.5e6
    model.get_layer("large").set_weights([kernel, bias])
    assert cause(model, Quantization.FLOAT16) == (
        "weights of layer large reach 2.5e+06, and float16 ends at 65,504; float32 and dynamic keep them"
    )
    assert cause(model, Quantization.DYNAMIC) == ""
    assert cause(joined(1), Quantization.FLOAT16) == ""


def test_a_layer_is_not_taken_for_one_of_its_repeated_name():
    """TensorFlow may name the layer dense dense_1."""
    inputs = keras.Input((4,), name="x")
    hidden = layers.Dense(3, name="dense_1")(layers.Dense(3, name="dense")(inputs))
    model = randomised(keras.Model(inputs, layers.Dense(2, name="dense_2")(hidden)))
    kernel, bias = model.get_layer("dense").get_weights()
    model.get_layer("dense").set_weights([1e6 * np.sign(kernel), bias])
    assert cause(model, Quantization.FLOAT16).startswith("weights of layer dense reach 1e+06")


def test_int8_networks_refused_by_litert_are_explained_by_their_largest_scale():
    model = joined(1000)
    x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    integers = convert(model, QuantizationConfig(precision=Quantization.INT8), {"x": x})
    names = [layer.name for layer in model.layers]
    ranges = [
        np.ptp(np.asarray(output))
        for output in keras.Model(model.input, [model.get_layer("both").output, model.output])(x)
    ]
    step = max(ranges) / 255
    assert float(largest_scale(integers, names).split()[-1]) == pytest.approx(step, rel=0.3)
    with (
        pytest.raises(LiteRtError) as caught,
        _runnable(integers, Quantization.INT8, names),
    ):
        raise LiteRtError("one that LiteRT rejects", "refused")
    assert "one with integers that LiteRT rejects: a step of layer " in str(caught.value)
    with pytest.raises(LiteRtError, match="other"), _runnable(integers, Quantization.NONE, names):
        raise LiteRtError("one that LiteRT rejects", "other")
