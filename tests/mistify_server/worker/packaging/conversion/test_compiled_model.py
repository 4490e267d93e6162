"""Packages in LiteRT's `CompiledModel`, which loads all of them and computes the same as `Interpreter`."""

from dataclasses import replace

import numpy as np
import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import STORED
from mistify_server.worker.packaging.conversion.branches import convert_branches
from mistify_server.worker.packaging.conversion.converter import convert
from tests.executors.structure.architectures import FAMILIES
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import four_branches, images
from tests.support.compiled_models import assert_runs_compiled

#: Networks with different operators: residual, with sizes computed at run time, and with two inputs.
FEW = ("residual_projection", "squeeze_excite_reshape", "siamese")
QUANTIZATIONS = [*STORED, {"precision": "int8", "inputs": "int8"}]


def family(name):
    build, _ = FAMILIES[name]
    return randomised(build(lambda group, tensor, repeat=None: tensor))


def converted_to(precision, model):
    rng = np.random.default_rng(0)
    examples = {one.name: rng.normal(size=(20, *one.shape[1:])).astype(np.float32) for one in model.inputs}
    return convert(model, QuantizationConfig.model_validate(precision), examples)


@pytest.mark.sampled
@pytest.mark.parametrize("precision", QUANTIZATIONS, ids=str)
@pytest.mark.parametrize("name", FEW)
def test_a_network_runs_compiled(name, precision):
    signatures = assert_runs_compiled(converted_to(precision, family(name)))
    assert signatures == ["serving_default", "serving_default_batch_1"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", QUANTIZATIONS, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_network_runs_compiled(name, precision):
    assert_runs_compiled(converted_to(precision, family(name)))


def branched(count, precision="none"):
    branches = four_branches()
    networks = (*branches.networks, branches.networks[0])[:count]
    quantization = QuantizationConfig.model_validate(precision)
    return convert_branches(replace(branches, networks=networks), quantization, {"image": images(20)})


# Condition trees of every shape: with an odd number, one side of a choice is a single network.
@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_branches_run_compiled(count):
    signatures = assert_runs_compiled(branched(count))
    each = [f"branch_{number}" for number in range(count)]
    assert signatures == ["serving_default", *each, *(f"{name}_batch_1" for name in each)]


@pytest.mark.sampled
@pytest.mark.parametrize("precision", ["float16", "dynamic", "int8"])
def test_branches_run_compiled_at_other_precisions(precision):
    assert_runs_compiled(branched(3, precision))
