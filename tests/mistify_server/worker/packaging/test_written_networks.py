"""Packages whose networks come from a template."""

import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import run_network
from tests.mistify_server.worker.packaging.networks import (
    images,
    network,
    package_task,
    packaged,
    training_setup,
)

#: The largest difference between a package's outputs and the checkpoint's.
TOLERANCES = {Quantization.NONE: 1e-5, Quantization.FLOAT16: 2e-3}


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def setup(model):
    return training_setup(model)


def written_by(model):
    """What a template for the network of a model gives."""
    return lambda quantization: convert(model, quantization)


@pytest.mark.sampled
@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_written_network_is_packaged_if_it_computes_the_same(model, setup, precision):
    written = written_by(model)
    task = package_task(quantization=QuantizationConfig(precision=precision))
    package = packaged(model, task, setup, written=written)
    assert package.files["serve.tflite"] == written(task.spec.quantization)


@pytest.mark.sampled
@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_written_network_that_computes_something_else_is_converted(model, setup, precision):
    task = package_task(quantization=QuantizationConfig(precision=precision))
    package = packaged(model, task, setup, written=written_by(network(seed=1)))
    outputs = run_network(package.files["serve.tflite"], {"image": images(9)})["scores"]
    np.testing.assert_allclose(outputs, np.asarray(model(images(9))), atol=TOLERANCES[precision])


def test_a_network_with_further_forms_is_converted(model, setup):
    def written(quantization):
        raise AssertionError("a template was used")

    package = packaged(model, package_task(tuning=TuningConfig(trainable="head")), setup, written=written)
    assert "train.tflite" in package.files
