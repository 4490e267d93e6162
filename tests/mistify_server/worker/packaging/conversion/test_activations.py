"""Calibration examples: those on which a network overflows are left out."""

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.structure.exporting import folded
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify_server.worker.packaging.conversion.activations import ActivationCheck, calibration
from tests.mistify_server.worker.packaging.networks import network, package_task, packaged, training_setup

layers = keras.layers


def exponential():
    """Return a network that overflows between its layers for inputs above 88, with finite outputs."""
    inputs = keras.Input((3,), name="x")
    hidden = layers.Activation("exponential", name="growth")(inputs)
    return keras.Model(inputs, layers.Activation("tanh", name="y")(hidden))


def data(*large, count=40, value=100):
    """Return examples, some of them large."""
    x = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    x[list(large), 1] = value
    return Dataset({"x": x}, {"y": np.zeros(count, np.int64)})


def test_constants_that_a_layer_holds_as_tensors_are_no_inputs():
    """Keras traces the statistics of such a layer as further inputs of the function."""
    inputs = keras.Input((3,), name="x")
    hidden = layers.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0])(inputs)
    model = keras.Model(inputs, layers.Activation("exponential", name="y")(hidden))
    assert ActivationCheck(folded(model)).overflows({"x": data(7, value=1000).inputs["x"]}).keys() == {7}


def test_examples_that_overflow_inside_a_network_are_left_out_and_named():
    sample = calibration([folded(exponential())], data(7, 21))
    assert len(sample.examples["x"]) == 38
    assert sample.examples["x"].max() < 10
    first = np.random.default_rng(0).permutation(40).tolist()
    number = min((7, 21), key=first.index)
    assert sample.note == (
        "integers are calibrated with 38 of 40 examples: layer growth is not finite for example "
        f"{number} of the training data, and for 1 other"
    )


def test_reported_example_numbers_refer_to_the_data_file():
    part = data(7, 21).subset(np.arange(5, 15)).subset(np.arange(1, 10))
    assert "example 7 of the training data" in calibration([folded(exponential())], part).note


def test_without_overflows_all_examples_are_kept_without_a_remark():
    sample = calibration([folded(exponential())], data())
    assert (len(sample.examples["x"]), sample.note) == (40, "")


def test_overflows_in_each_function_count():
    inputs = keras.Input((3,), name="x")
    linear = keras.Model(inputs, layers.Dense(2, name="y")(inputs))
    assert calibration([folded(linear)], data(7)).note == ""
    assert calibration([folded(linear), folded(exponential())], data(7)).note


def test_the_error_without_a_finite_example_names_the_layer():
    with pytest.raises(MistifyError, match="layer growth is not finite for example") as caught:
        calibration([folded(exponential())], data(*range(40)))
    assert caught.value.code is ErrorCode.INVALID_MODEL


def test_an_infinite_input_is_named():
    check = ActivationCheck(folded(exponential()))
    assert check.overflows(data(3, value=np.inf).inputs) == {3: "input x"}


def test_operations_rewritten_to_be_stable_do_not_count():
    inputs = keras.Input((3,), name="x")
    model = keras.Model(inputs, layers.UnitNormalization()(layers.Activation("softplus")(inputs)))
    rows = np.array([[200, 0, -200], [-200, -200, -200]], np.float32)
    assert not ActivationCheck(folded(model)).overflows({"x": rows})


def test_a_package_reports_examples_left_out_of_calibration():
    model = network()
    setup = training_setup(model)
    setup.train.inputs["image"][11] = np.nan
    task = package_task(quantization=QuantizationConfig(precision=Quantization.INT8))
    note = packaged(model, task, setup).manifest.note
    assert "integers are calibrated with 79 of 80 examples: input image is not finite" in note
