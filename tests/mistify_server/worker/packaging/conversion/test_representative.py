"""Calibration examples are a random sample of all training data, however it is sorted."""

from dataclasses import replace

import numpy as np
import pytest

from executors.data import Dataset
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging.conversion.branches import Branches
from mistify_server.worker.packaging.conversion.representative import REPRESENTATIVE_EXAMPLES, representative
from tests.mistify_server.worker.packaging.networks import (
    BASE,
    branch,
    network,
    package_task,
    packaged,
    training_setup,
)

CLASSES = 10
INT8 = QuantizationConfig(precision=Quantization.INT8, inputs="int8")


def test_calibration_examples_of_sorted_data_come_from_all_classes():
    classes = np.repeat(np.arange(CLASSES), REPRESENTATIVE_EXAMPLES)
    train = Dataset({"image": classes[:, None].astype(np.float32)}, {"scores": classes})
    examples = representative(train).inputs["image"]
    assert examples.shape == (REPRESENTATIVE_EXAMPLES, 1)
    counts = np.bincount(examples[:, 0].astype(int), minlength=CLASSES)
    assert counts.min() >= REPRESENTATIVE_EXAMPLES / CLASSES / 2


def sorted_examples():
    """Return images sorted by class; only those of the last class are bright."""
    x = np.random.default_rng(0).uniform(size=(REPRESENTATIVE_EXAMPLES + 60, 8, 8, 2)).astype(np.float32)
    x[:REPRESENTATIVE_EXAMPLES] *= 0.1
    return Dataset({"image": x}, {"scores": np.repeat([0, 1, 2], len(x) // 3)})


@pytest.mark.sampled
@pytest.mark.parametrize("branched", [False, True], ids=["one network", "branches"])
def test_an_int8_package_is_calibrated_on_all_classes(branched):
    """The input scale is determined by the bright images, which come last."""
    own = branch(1.0, 3)
    branches = Branches(BASE, (own,)) if branched else None
    model = own.model if branched else network()
    setup = replace(training_setup(model), train=sorted_examples())
    package = packaged(model, package_task(quantization=INT8), setup, branches=branches)
    assert package.manifest.inputs[0].scale == pytest.approx(1 / 255, rel=0.02)
