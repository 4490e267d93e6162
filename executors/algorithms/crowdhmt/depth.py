"""One layer in place of a branch, the fifth operator family (CrowdHMTware III-A1, eta5)."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

import keras
import numpy as np

from executors.algorithms.adaptivenet.variants import VariantMaker
from executors.algorithms.crowdhmt.base import cheaper, examples_of, outputs_of
from executors.algorithms.crowdhmt.branches import Branch, branches
from executors.algorithms.crowdhmt.kernels import Array, places_for, with_weights
from executors.data import Dataset
from executors.pruning.least_squares import ridge_regression
from executors.pruning.windows import places_of, window_rows
from executors.structure import Structure, model_of
from executors.structure.graph import Graph, Node, TensorRef
from executors.structure.handlers import Window

layers = keras.layers

#: Layers with weights that a branch may contain: those that one linear layer can approximate.
_POSITIONWISE: Final = (layers.Dense, layers.BatchNormalization, layers.LayerNormalization)
_SPATIAL: Final = (layers.Conv1D, layers.Conv2D, layers.DepthwiseConv1D, layers.DepthwiseConv2D)

#: The convolution by the number of axes that it moves along.
_CONVOLUTIONS: Final = {1: layers.Conv1D, 2: layers.Conv2D}


class SingleLayer(VariantMaker):
    """Variants with one linear layer in place of each residual branch, fitted to the branch's outputs.

    The amount is the size of the kernel of a convolution; branches of dense layers are replaced by a dense
    layer. Branches in which positions influence each other in other ways, such as attention, stay.
    """

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be an odd number."""
        if amount != int(amount) or amount < 1 or amount % 2 == 0:
            raise ValueError("an odd number of positions, 1 or more")
        return 1

    def make(self, blocks: Sequence[Structure], amount: float, features: Dataset) -> Graph | None:
        """Return the block with shorter branches; None if it has none, or that saves no multiply-adds."""
        (block,) = blocks
        graph = block.graph
        tensors = examples_of(graph, features)
        for node in graph.nodes:
            tensors[node.output] = outputs_of(node, tensors)
        for branch in branches(graph):
            if kind := _kind(branch, graph):
                read, made = (np.asarray(tensors[one]) for one in (branch.start, branch.nodes[-1].output))
                if layer := _fitted(branch, kind, read, made, int(amount)):
                    graph = _with_layer(graph, branch, layer)
        return None if graph is block.graph else cheaper(model_of(graph), block)


def _kind(branch: Branch, graph: Graph) -> type | None:
    """Return the class of the layer that can replace a branch; None if there is none, or it has one layer."""
    kernels = [node for node in branch.nodes if isinstance(node.layer, (layers.Dense, *_SPATIAL))]
    weighted = [node for node in branch.nodes if graph.variables[node.name]]
    ranks = {len(graph.shapes[tensor]) for tensor in (branch.start, branch.nodes[-1].output)}
    if len(kernels) < 2 or len(ranks) > 1:
        return None
    if any(not isinstance(node.layer, (*_POSITIONWISE, *_SPATIAL)) for node in weighted):
        return None
    moves = any(isinstance(node.layer, _SPATIAL) for node in kernels)
    return _CONVOLUTIONS.get(ranks.pop() - 2) if moves else layers.Dense


def _fitted(branch: Branch, kind: type, inputs: Array, targets: Array, size: int) -> keras.Layer | None:
    """Return a layer fitted to the outputs of a branch; None if its outputs would have another shape."""
    name, channels = f"{branch.nodes[-1].name}-single", targets.shape[-1]
    window = Window()
    if kind is not layers.Dense:
        strides = tuple(-(-read // made) for read, made in zip(_sizes(inputs), _sizes(targets), strict=True))
        rank = len(strides)
        window = Window((size,) * rank, strides, (1,) * rank, "same")
    if places_of(inputs.shape, window) != targets.shape[:-1]:
        return None
    places = places_for(targets.shape[:-1], inputs.shape[-1] * prod(window.size))
    weights, bias = ridge_regression(window_rows(inputs, window, places), targets[places])
    settings = (
        {"kernel_size": window.size, "strides": window.strides, "padding": "same"} if window.size else {}
    )
    layer = kind(channels, name=name, **(settings if window.size else {}))
    return with_weights(layer, inputs.shape, weights.reshape(*window.size, inputs.shape[-1], channels), bias)


def _with_layer(graph: Graph, branch: Branch, layer: keras.Layer) -> Graph:
    """Return a graph with a layer in place of a branch."""
    last = branch.nodes[-1]
    single = Node(layer.name, layer, (TensorRef(branch.start),), {}, (branch.start,), last.output)
    dropped = branch.nodes[:-1]
    nodes = (single if node is last else node for node in graph.nodes if node not in dropped)
    return replace(graph, nodes=tuple(nodes))


def _sizes(tensor: Array) -> tuple[int, ...]:
    return tensor.shape[1:-1]
