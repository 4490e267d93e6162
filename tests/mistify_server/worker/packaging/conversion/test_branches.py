"""Packages with branches: each branch gives the outputs of its network, and the base is stored once."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.tools import flatbuffer_utils

from executors.structure import analyse
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import branch_signature
from mistify_server.worker.packaging.conversion.branches import convert_branches
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.mistify_server.worker.packaging.networks import (
    branch,
    four_branches,
    images,
    package_task,
    packaged,
    training_setup,
)


@pytest.fixture(scope="module")
def branches():
    return four_branches()


@pytest.fixture(scope="module")
def converted_to(branches):
    """Return the branches in a file at a precision; each is converted only once."""

    @cache
    def convert(precision):
        return convert_branches(
            branches, QuantizationConfig.model_validate(precision), {"image": images(100)}
        )

    return convert


@pytest.fixture(scope="module")
def converted(converted_to):
    return converted_to("none")


def by_number(network, number, batch):
    """Run the network with the number of a branch as input."""
    return Runner(network)({"image": images(batch), "branch": number})["scores"]


def by_signature(network, number, batch):
    """Run a branch through its own signature."""
    return Runner(network, branch_signature(number))({"image": images(batch)})["scores"]


@pytest.mark.parametrize("run", [by_number, by_signature])
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("number", range(4))
def test_each_branch_gives_the_outputs_of_its_network(branches, converted, number, batch, run):
    expected = branches.networks[number].model.predict(images(batch), verbose=0)
    np.testing.assert_allclose(run(converted, number, batch), expected, atol=1e-5)


def test_the_branches_differ(branches, converted):
    actual = [by_number(converted, number, 9) for number in range(4)]
    for left, right in pairwise(actual):
        assert np.abs(left - right).max() > 1e-3


@pytest.mark.parametrize(("number", "nearest"), [(-5, 0), (4, 3), (2**31 - 1, 3)])
def test_an_unknown_branch_number_selects_the_nearest(converted, number, nearest):
    np.testing.assert_array_equal(by_number(converted, number, 2), by_number(converted, nearest, 2))


def kernels(network):
    """Count the distinct weights of each multidimensional shape in all graphs together."""
    model = flatbuffer_utils.read_model_from_bytearray(network)
    contents = {
        tensor.buffer: tuple(tensor.shape)
        for graph in model.subgraphs
        for tensor in graph.tensors
        if model.buffers[tensor.buffer].data is not None
        and tensor.shape is not None
        and len(tensor.shape) > 1
    }
    return Counter(contents.values())


@pytest.mark.sampled
@pytest.mark.parametrize("precision", ["none", "float16", "dynamic", "int8"])
def test_the_base_is_stored_once_and_every_branch_separately(converted_to, precision):
    actual = kernels(converted_to(precision))
    assert actual[24, 3, 3, 2] == 1
    assert [actual[width, 3, 3, 24] for width in (1, 2, 3, 6)] == [1, 1, 1, 1]


def test_one_interpreter_runs_all_branches(converted):
    """The same interpreter is reused: only the branch number among its inputs changes."""
    interpreter = Interpreter(model_content=converted, num_threads=1)
    interpreter.allocate_tensors()
    by_name = {entry["name"].split(":")[0]: entry["index"] for entry in interpreter.get_input_details()}
    choice = next(index for name, index in by_name.items() if "branch" in name)
    image = next(index for name, index in by_name.items() if "image" in name)
    interpreter.set_tensor(image, images(1))
    output = interpreter.get_output_details()[0]["index"]
    actual = {}
    for number in (0, 3, 0, 3, 1):
        interpreter.set_tensor(choice, np.int32(number))
        interpreter.invoke()
        predicted = actual.setdefault(number, interpreter.get_tensor(output))
        np.testing.assert_array_equal(predicted, interpreter.get_tensor(output))
    for number, predicted in actual.items():
        np.testing.assert_allclose(predicted, by_number(converted, number, 1), atol=1e-6)


@pytest.mark.parametrize("precision", ["float16", "dynamic"])
def test_branches_can_be_stored_at_other_precisions(converted_to, converted, precision):
    stored = converted_to(precision)
    differences = []
    for number in range(4):
        actual = by_signature(stored, number, 5)
        differences.append(np.abs(actual - by_signature(converted, number, 5)).max())
    assert 0 < differences[-1] <= max(differences) < 0.05


@pytest.mark.parametrize("run", [by_number, by_signature])
def test_each_int8_branch_has_its_own_scales(branches, converted_to, run):
    integers = converted_to("int8")
    for number, network in enumerate(branches.networks):
        differences = np.abs(run(integers, number, 40) - network.model.predict(images(40), verbose=0))
        assert 0 < differences.mean() <= differences.max() < 0.06
    graphs = flatbuffer_utils.read_model_from_bytearray(integers)
    for number in range(4):
        made = operators_of(graphs, branch_signature(number))
        assert made == {"INT8"}


def operators_of(model, signature):
    """Return the output types of the operators in a graph, except the last one."""
    (number,) = (one.subgraphIndex for one in model.signatureDefs if one.signatureKey == signature.encode())
    graph = model.subgraphs[number]
    return {flatbuffer_utils.type_to_name(graph.tensors[one.outputs[0]].type) for one in graph.operators[:-1]}


def test_branches_may_share_no_layers(branches):
    apart = convert_branches(replace(branches, base=()), QuantizationConfig())
    for number, one in enumerate(branches.networks):
        expected = one.model.predict(images(3), verbose=0)
        np.testing.assert_allclose(by_signature(apart, number, 3), expected, atol=1e-5)


@pytest.fixture(scope="module")
def package(branches):
    own = branches.networks[branches.default].model
    return packaged(own, package_task(), training_setup(own), branches=branches)


def test_a_manifest_lists_the_branches(package, branches):
    manifest = package.manifest
    assert [one.share for one in manifest.branches] == [1 / 3, 0.6, 1.0, 3.0]
    assert manifest.default_branch == 2
    assert [info.name for info in manifest.inputs] == ["image"]
    own = manifest.branches[2]
    assert (manifest.accuracy, manifest.latency) == (own.accuracy, own.latency)
    assert own.accuracy > manifest.branches[0].accuracy, "most labels are the network's own predictions"
    for one, network_of in zip(manifest.branches, branches.networks, strict=True):
        assert one.achieved["flops"] == analyse(network_of.model).network().flops
        assert one.latency.median_ms > 0


def test_the_costs_of_a_package_cover_all_its_branches(package, branches):
    """All weights in the file count once, plus the activations of one branch."""
    size = len(package.files["serve.tflite"])
    assert package.manifest.achieved["size_bytes"] == size
    model = flatbuffer_utils.read_model_from_bytearray(package.files["serve.tflite"])
    buffers = {
        tensor.buffer
        for graph in model.subgraphs
        for tensor in graph.tensors
        if model.buffers[tensor.buffer].data is not None
        and flatbuffer_utils.type_to_name(tensor.type) == "FLOAT32"
    }
    stored = sum(len(model.buffers[buffer].data) for buffer in buffers)
    peak = max(analyse(one.model).network().activation_bytes() for one in branches.networks)
    assert package.manifest.achieved["memory_bytes"] == pytest.approx(stored + peak, rel=0.02)


@pytest.mark.slow
def test_a_branch_with_different_outputs_is_refused(branches, monkeypatch):
    other = branch(1.0, 4)
    lying = replace(branches, networks=(*branches.networks[:2], other, branches.networks[3]))
    monkeypatch.setattr(
        "mistify_server.worker.packaging.models.convert_branches",
        lambda _, *asked: convert_branches(branches, *asked),
    )
    with pytest.raises(MistifyError) as error:
        packaged(other.model, package_task(), training_setup(other.model), branches=lying)
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE


def test_a_package_of_one_network_has_no_branches(branches):
    own = branches.networks[2].model
    manifest = packaged(own, package_task(), training_setup(own)).manifest
    assert (manifest.branches, manifest.default_branch) == ((), 0)
    assert manifest.quantization is Quantization.NONE
