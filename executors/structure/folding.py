"""Folding of batch norms into the preceding layers, so that the tuned network is also the served one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from executors.structure.each_step import applied, remade
from executors.structure.graph import Graph, Node
from executors.structure.litert_operations import SERVED
from executors.structure.reading.reader import read_graph

Array = npt.NDArray[np.float32]

#: Weights of layers, in their order, by the name of the layer.
Weights = dict[str, list[npt.NDArray[Any]]]

layers = keras.layers


def _last_axis(kernel: Array, scale: Array) -> Array:
    return kernel * scale


def _depthwise(kernel: Array, scale: Array) -> Array:
    return kernel * scale.reshape(kernel.shape[-2:])


def _transposed(kernel: Array, scale: Array) -> Array:
    return kernel * scale[:, None]


#: Layer class with linear outputs -> its kernel, and the function that scales the kernel per output channel.
_KERNELS: Mapping[type, tuple[str, Callable[[Array, Array], Array]]] = {
    layers.Conv1D: ("kernel", _last_axis),
    layers.Conv2D: ("kernel", _last_axis),
    layers.Conv3D: ("kernel", _last_axis),
    layers.Conv1DTranspose: ("kernel", _transposed),
    layers.Conv2DTranspose: ("kernel", _transposed),
    layers.Conv3DTranspose: ("kernel", _transposed),
    layers.Dense: ("kernel", _last_axis),
    layers.DepthwiseConv1D: ("kernel", _depthwise),
    layers.DepthwiseConv2D: ("kernel", _depthwise),
    layers.SeparableConv1D: ("pointwise_kernel", _last_axis),
    layers.SeparableConv2D: ("pointwise_kernel", _last_axis),
}


def foldable(graph: Graph) -> dict[Node, Node]:
    """Return the batch norms that can be folded, each with the preceding call.

    A batch norm over the last axis can be folded if it is the only reader of a linear convolution or dense
    layer, and neither layer is called twice.
    """
    makers = {node.output: node for node in graph.nodes}
    readers = graph.consumers
    calls = [node.name for node in graph.nodes]
    pairs = {}
    for node in graph.nodes:
        maker = makers.get(node.inputs[0]) if type(node.layer) is layers.BatchNormalization else None
        if (
            maker is not None
            and type(applied(maker.layer)) in _KERNELS
            and getattr(applied(maker.layer), "data_format", "channels_last") == "channels_last"
            and node.layer.axis in (-1, len(graph.shapes[node.output]) - 1)
            and applied(maker.layer).activation is keras.activations.linear
            and len(readers[maker.output]) == 1
            and maker.output not in graph.outputs
            and calls.count(node.name) == calls.count(maker.name) == 1
        ):
            pairs[node] = maker
    return pairs


def folded_norms(model: keras.Model) -> dict[str, keras.layers.Layer]:
    """Return the batch norms that `fold_batch_norm` folds into layers, by the layer's name afterwards."""
    graph = read_graph(model)
    return {_folded_name(graph, maker, norm): norm.layer for norm, maker in foldable(graph).items()}


def fold_batch_norm(model: keras.Model) -> keras.Model:
    """Return an equivalent model without batch norms; those that cannot be folded become scales and shifts.

    `y = gamma * (W x + b - mean) / sqrt(variance + epsilon) + beta` becomes one kernel and one bias. Without
    a suitable preceding layer, the statistics are merged into gamma and beta, if it has both. Outputs keep
    their
    names: a layer that replaces a batch norm at an output takes its name.
    """
    slim, weights, settled = _folded(read_graph(model))

    def make_layer(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        changes = ({"use_bias": True} if name in weights else {}) | (
            {"epsilon": 0.0} if name in settled else {}
        )

        def made(own: str, single: Any) -> Any:
            return SERVED.get(type(single), type(single)).from_config(
                {**single.get_config(), "name": own, **changes}
            )

        return remade(name, layer, made)

    return slim.build(make_layer, slim.weights | weights | settled)


def folded_weights(graph: Graph) -> Weights:
    """Return the weights that the layers have after `fold_batch_norm`, by the names that they have then."""
    slim, weights, settled = _folded(graph)
    return slim.weights | weights | settled


def _folded(graph: Graph) -> tuple[Graph, Weights, Weights]:
    """Return the graph without batch norms that can be folded, and the weights that change.

    The latter are those of the layers into which batch norms are folded, and those of the remaining batch
    norms with scale and center, without statistics.
    """
    pairs = foldable(graph)
    slim = graph.without({norm.output: norm.inputs[0] for norm in pairs})
    names = {maker.name: _folded_name(graph, maker, norm) for norm, maker in pairs.items()}
    slim = replace(
        slim, nodes=tuple(replace(node, name=names.get(node.name, node.name)) for node in slim.nodes)
    )
    weights = {names[maker.name]: _fold(applied(maker.layer), norm.layer) for norm, maker in pairs.items()}
    settled = {
        name: _settle(layer)
        for name, layer in slim.layers.items()
        if type(layer) is layers.BatchNormalization and layer.scale and layer.center
    }
    return slim, weights, settled


def _folded_name(graph: Graph, maker: Node, norm: Node) -> str:
    """Return the name of a folded layer: that of its batch norm if it makes an output."""
    return norm.name if norm.output in graph.outputs else maker.name


def _settle(norm: keras.layers.Layer) -> list[Array]:
    """Return equivalent weights of a batch norm with mean 0, variance 1 and epsilon 0."""
    mean = np.asarray(norm.moving_mean)
    scale = np.asarray(norm.gamma) / np.sqrt(np.asarray(norm.moving_variance) + norm.epsilon)
    return [scale, np.asarray(norm.beta) - mean * scale, np.zeros_like(mean), np.ones_like(mean)]


def _fold(layer: keras.layers.Layer, norm: keras.layers.Layer) -> list[Array]:
    """Return the weights of a linear layer with the following batch norm folded in."""
    scale = 1.0 / np.sqrt(np.asarray(norm.moving_variance) + norm.epsilon)
    if norm.scale:
        scale = scale * np.asarray(norm.gamma)
    shift = np.asarray(norm.beta) if norm.center else np.zeros_like(scale)
    bias = np.asarray(layer.bias) if layer.use_bias else np.zeros_like(scale)
    attribute, multiply = _KERNELS[type(layer)]
    kernel = getattr(layer, attribute)
    weights = [
        multiply(np.asarray(weight), scale) if weight is kernel else np.asarray(weight)
        for weight in layer.weights
        if not (layer.use_bias and weight is layer.bias)
    ]
    return [*weights, (bias - np.asarray(norm.moving_mean)) * scale + shift]
