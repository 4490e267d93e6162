"""The operators of converted networks, compared with the layers of Keras."""

import keras
import numpy as np
import pytest

from executors.structure import analyse
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.catalogue import HOST
from mistify.costs.quantization import Quantization
from mistify_server.worker.packaging import graphs
from mistify_server.worker.packaging.conversion.branches import Branches, convert_branches
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.graphs import network_graph
from mistify_server.worker.packaging.tflite.tensor_errors import TensorErrors
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import BASE, branch, images

layers = keras.layers


def residual() -> keras.Model:
    """Return a network with a skip connection and two outputs."""
    image = keras.Input((8, 8, 2), name="image")
    x = layers.Conv2D(6, 3, padding="same", activation="relu", name="stem")(image)
    y = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(x)
    y = layers.Conv2D(6, 1, name="point")(y)
    x = layers.Add(name="add")([x, y])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    outputs = {"kind": layers.Dense(3, name="kind")(x), "size": layers.Dense(1, name="size")(x)}
    return randomised(keras.Model(image, outputs))


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return residual()


def graph_of(model, precision=Quantization.NONE, signature="serving_default", network=None):
    quantization = QuantizationConfig(precision=precision)
    examples = {"image": images(40)} if precision.integer else None
    network = network or convert(model, quantization, examples)
    names = [layer.name for layer in model.layers]
    return network_graph(network, signature, names, HOST, TensorErrors({}, 0))


def by_layer(graph):
    return {node.layer: node for node in graph.nodes if node.weights or node.index is None}


def test_operators_read_what_their_layers_read(model):
    graph = graph_of(model)
    assert (graph.hardware, graph.examples, graph.nodes[0].operator) == ("host", 0, "INPUT")
    at = {node.layer: position for position, node in enumerate(graph.nodes)}
    read = {node.layer: {graph.nodes[each].layer for each in node.inputs} for node in graph.nodes}
    assert read["image"] == set()
    assert read["stem"] == {"image"}
    assert read["depthwise"] == {"stem"}
    assert read["point"] == {"depthwise"}
    assert read["add"] == {"stem", "point"}
    assert read["kind"] == read["size"] == {"pool"}
    assert all(read < position for position, node in enumerate(graph.nodes) for read in node.inputs)
    assert at["stem"] < at["depthwise"] < at["point"] < at["add"]
    assert {node.output for node in graph.nodes} == {"", "kind", "size"}
    assert [node.index for node in graph.nodes] == [None, *range(len(graph.nodes) - 1)]


def test_layers_are_told_apart_from_repeated_names():
    """TensorFlow may name the layer conv2d conv2d_1, and the layer conv2d_1 conv2d_1_2."""
    widths = {"conv2d": 5, "conv2d_1": 6, "conv2d_2": 7, "conv2d_3": 8}
    x = image = keras.Input((8, 8, 2), name="image")
    for name, width in widths.items():
        x = layers.Conv2D(width, 1, name=name)(x)
    model = randomised(keras.Model(image, layers.Dense(3, name="y")(layers.Flatten(name="flat")(x))))
    for _ in range(2):  # later conversions have further suffixes
        found = by_layer(graph_of(model))
        assert {name: found[name].shape[-1] for name in widths} == widths


def test_figures_are_those_of_the_layers(model):
    graph = graph_of(model)
    found = by_layer(graph)
    for name in ("stem", "depthwise", "point", "kind", "size"):
        layer, node = model.get_layer(name), found[name]
        assert node.shape == (1, *layer.output.shape[1:])
        assert (node.type, node.weight_type) == ("FLOAT32", "FLOAT32")
        assert node.output_bytes == 4 * np.prod(node.shape)
        assert (node.weights, node.weight_bytes) == (layer.count_params(), 4 * layer.count_params())
    assert found["image"].output_bytes == 4 * 8 * 8 * 2
    assert sum(node.multiply_adds for node in graph.nodes) == analyse(model).network().flops
    assert found["stem"].multiply_adds == 8 * 8 * 2 * 6 * 9
    assert found["stem"].milliseconds > found["kind"].milliseconds > 0


@pytest.mark.parametrize(
    ("precision", "types", "sizes"),
    [
        (Quantization.FLOAT16, ("FLOAT16", "FLOAT32"), (2, 2)),
        (Quantization.INT8, ("INT8", "INT8"), (1, 4)),
    ],
)
def test_weights_are_counted_as_they_are_stored(model, precision, types, sizes):
    """Operators that unpack weights are no nodes, and biases of int8 have 32 bits."""
    graph = graph_of(model, precision)
    found = by_layer(graph)
    for name in ("stem", "depthwise", "point"):
        kernel, bias = model.get_layer(name).get_weights()
        node = found[name]
        assert ((node.weight_type, node.type), node.weights) == (types, kernel.size + bias.size)
        assert node.weight_bytes == sizes[0] * kernel.size + sizes[1] * bias.size
    assert all(node.inputs for node in graph.nodes if node.index is not None)
    assert sum(node.multiply_adds for node in graph.nodes) == analyse(model).network().flops


def test_weights_that_are_shared_count_once():
    x = keras.Input((4,), name="image")
    shared = layers.Dense(4, name="shared")
    model = randomised(keras.Model(x, shared(layers.ReLU()(shared(x)))))
    graph = graph_of(model)
    assert sum(node.weights for node in graph.nodes) == model.count_params()
    assert sum(node.weight_type == "FLOAT32" for node in graph.nodes) == 2


def test_a_package_with_branches_has_the_operators_of_the_chosen_one():
    branches = Branches(BASE, (branch(0.5, 2), branch(1.0, 6)))
    network = convert_branches(branches, QuantizationConfig())
    for number, own in enumerate(branches.networks):
        graph = graph_of(own.model, signature=f"branch_{number}", network=network)
        assert by_layer(graph)["inner"].shape[-1] == own.model.get_layer("inner").output.shape[-1]


def test_a_network_of_too_many_operators_has_no_graph(model, monkeypatch):
    monkeypatch.setattr(graphs, "MOST_OPERATORS", len(graph_of(model).nodes) - 2)
    assert graph_of(model) is None
