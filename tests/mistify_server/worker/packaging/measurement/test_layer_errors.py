"""Errors of the operators of quantized networks, compared with integer arithmetic in NumPy."""

import keras
import numpy as np
import pytest
from ai_edge_litert.tools import flatbuffer_utils

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.catalogue import HOST
from mistify.costs.quantization import Quantization
from mistify.jobs.network_graph import error_growth
from mistify.package.manifest import branch_signature
from mistify_server.worker.packaging.conversion.branches import Branches
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.graphs import network_graph
from mistify_server.worker.packaging.measurement.layer_errors import layer_errors
from mistify_server.worker.packaging.tflite import tensor_errors as comparison
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.packaging.tflite.tensor_errors import NetworkGraphAt, tensor_errors
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import (
    BASE,
    branch,
    network,
    package_task,
    packaged,
    training_setup,
)

layers = keras.layers
X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


def dense():
    x = keras.Input((6,), name="x")
    y = layers.Dense(8, "relu", name="first")(x)
    return randomised(keras.Model(x, layers.Dense(3, name="second")(y)))


def joined(ratio):
    """Return two concatenated layers with ranges that differ by a ratio."""
    x = keras.Input((6,), name="x")
    large, small = layers.Dense(3, name="large")(x), layers.Dense(3, name="small")(x)
    y = layers.Concatenate(name="both")([large, small])
    model = randomised(keras.Model(x, layers.Dense(2, name="y")(y)))
    kernel, bias = model.get_layer("small").get_weights()
    model.get_layer("large").set_weights([ratio * kernel, ratio * bias])
    return model


def graph_of(model, precision, inputs=X):
    """Return the graph of a model at a precision, with its errors over the inputs."""
    quantized = convert(model, QuantizationConfig(precision=precision), {"x": X})
    errors = layer_errors(quantized, convert(model), {"x": inputs})
    names = [layer.name for layer in model.layers]
    return network_graph(quantized, "serving_default", names, HOST, errors), quantized


def errors_by_layer(graph):
    return {node.layer: node.error for node in graph.nodes if node.weights}


def relative(actual, expected):
    return float(np.sqrt(np.square(actual - expected).mean() / np.square(expected).mean()))


def rounded(values, quantization):
    """Return what is left of values as int8 with a scale and a zero point."""
    scale, zero = float(quantization.scale[0]), int(quantization.zeroPoint[0])
    return (np.clip(np.round(values / scale) + zero, -128, 127) - zero) * scale


def in_integers(quantized, x):
    """Return the outputs of two dense layers as int8, computed from the weights and scales in the file."""
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(quantized))
    graph = model.subgraphs[0]
    products = [
        operator
        for operator in graph.operators
        if flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) == "FULLY_CONNECTED"
    ]
    values = rounded(x, graph.tensors[products[0].inputs[0]].quantization)
    for number, operator in enumerate(products):
        kernel, bias = (graph.tensors[index] for index in operator.inputs[1:])
        integers = model.buffers[kernel.buffer].data.view(np.int8).reshape(kernel.shape)
        added = model.buffers[bias.buffer].data.view(np.int32) * np.asarray(bias.quantization.scale)
        scales = np.asarray(kernel.quantization.scale)[:, None]
        values = values @ (integers * scales).T + added
        values = np.maximum(values, 0) if number == 0 else values
        values = rounded(values, graph.tensors[operator.outputs[0]].quantization)
        yield values


def test_errors_of_int8_are_those_of_its_arithmetic():
    model = dense()
    graph, quantized = graph_of(model, Quantization.INT8)
    expected = keras.Model(model.input, [model.get_layer("first").output, model.output])(X)
    computed = in_integers(quantized, X)
    errors = [relative(values, np.asarray(exact)) for values, exact in zip(computed, expected, strict=True)]
    shown = errors_by_layer(graph)
    assert [shown["first"], shown["second"]] == pytest.approx(errors, rel=0.05)
    assert graph.examples == len(X)
    # The output is the integers of the last layer as floats, and the input has no error yet.
    assert (graph.nodes[0].error, graph.nodes[-1].operator) == (0.0, "DEQUANTIZE")
    assert graph.nodes[-1].error == shown["second"]


def test_the_layer_that_loses_the_accuracy_is_where_the_error_grows():
    """Concatenated tensors share a scale, which leaves a quarter of a step for the smaller one."""
    graph, _ = graph_of(joined(1020), Quantization.INT8)
    grown = error_growth(graph)
    worst = max(grown, key=grown.__getitem__)
    assert graph.nodes[worst].layer == "small"
    assert graph.nodes[worst].error > 0.5
    assert errors_by_layer(graph)["large"] < 0.05
    even, _ = graph_of(joined(1), Quantization.INT8)
    assert max(error_growth(even).values()) < 0.05


@pytest.mark.parametrize(
    ("precision", "least", "most"), [(Quantization.FLOAT16, 1e-5, 1e-3), (Quantization.DYNAMIC, 1e-3, 5e-2)]
)
def test_other_precisions_have_the_errors_of_their_rounding(precision, least, most):
    """Kernels of fewer than 1,024 weights are not rounded in dynamic packages."""
    x = keras.Input((6,), name="x")
    y = layers.Dense(64, "relu", name="first")(layers.Dense(64, "relu", name="wide")(x))
    graph, _ = graph_of(randomised(keras.Model(x, layers.Dense(3, name="second")(y))), precision)
    shown = errors_by_layer(graph)
    assert least < shown["first"] < most
    assert graph.nodes[0].error == 0.0


def test_a_network_without_rounding_has_no_errors():
    model = dense()
    content = convert(model)
    errors = layer_errors(content, content, {"x": X})
    assert set(errors.by_tensor.values()) == {0.0}
    assert errors.examples == len(X)


def whole(content):
    return NetworkGraphAt(content, "serving_default", 0)


def test_the_time_bounds_the_number_of_examples():
    content = convert(dense())
    own = whole(content)
    assert tensor_errors(own, own, [(0, 0)], {"x": X}, seconds=0.0).examples == 1
    assert tensor_errors(own, own, [(0, 0)], {"x": X}, seconds=60.0).examples == len(X)


def test_networks_whose_tensors_are_too_large_are_not_run(monkeypatch):
    own = whole(convert(dense()))
    monkeypatch.setattr(comparison, "_MOST_BYTES", 100)
    errors = tensor_errors(own, own, [(0, 0)], {"x": X}, seconds=60.0)
    assert (errors.by_tensor, errors.examples) == ({}, 0)


def test_tensors_that_cannot_be_compared_are_left_out():
    """Tensors of other shapes have no difference, and zeros have no relative error."""
    own, x = dense(), keras.Input((6,), name="x")
    silent = randomised(keras.Model(x, layers.Dense(8, name="first")(x)))
    silent.set_weights([np.zeros_like(weight) for weight in silent.get_weights()])
    ours, theirs = convert(own), convert(silent)
    graph = flatbuffer_utils.read_model_from_bytearray(bytearray(ours)).subgraphs[0]
    other = flatbuffer_utils.read_model_from_bytearray(bytearray(theirs)).subgraphs[0]
    first, second = (int(operator.outputs[0]) for operator in graph.operators)
    zeros = int(other.outputs[0])
    pairs = [(int(graph.inputs[0]), int(other.inputs[0])), (first, zeros), (second, zeros)]
    errors = tensor_errors(whole(ours), whole(theirs), pairs, {"x": X}, seconds=60.0)
    assert errors.by_tensor == {int(graph.inputs[0]): 0.0}


@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.INT8])
def test_packages_come_with_the_errors_of_their_operators(precision):
    model = network()
    task = package_task(quantization=QuantizationConfig(precision=precision))
    graph = packaged(model, task, training_setup(model)).graph
    measured = [node.error for node in graph.nodes if node.error is not None]
    assert graph.examples == (64 if precision.integer else 0)
    assert len(measured) == (len(graph.nodes) if precision.integer else 0)
    assert all(0 <= error < 0.5 for error in measured)
    assert any(measured) is precision.integer


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_package_with_branches_has_the_errors_of_its_own_network(share):
    """The other branch is another network, with which the errors would be far larger."""
    branches = Branches(BASE, tuple(branch(each / share, width) for each, width in ((0.5, 2), (1.0, 6))))
    own = branches.networks[branches.default].model
    task = package_task(quantization=QuantizationConfig(precision=Quantization.INT8))
    setup = training_setup(own)
    package = packaged(own, task, setup, branches=branches)
    inputs = {name: array[:64] for name, array in setup.validation.inputs.items()}
    actual = Runner(package.files["serve.tflite"], branch_signature(branches.default))(inputs)["scores"]
    expected = own.predict(inputs, verbose=0)
    graph = package.graph
    assert graph.examples == 64
    assert graph.nodes[-1].error == pytest.approx(relative(actual, expected), rel=0.1)
    assert all(node.error < 0.2 for node in graph.nodes if node.weights)
