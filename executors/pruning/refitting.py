"""Refitting of a cut network to its outputs before the cut, layer by layer, without training.

Layers are fitted in order from the inputs on. Each layer receives the inputs that the cut network computes,
and is fitted to its own outputs before the cut. It thereby compensates both for cuts in its inputs and for
the remaining errors of earlier layers. (He et al., Channel Pruning, 2017, also fit each layer to its old
outputs with the inputs of the cut network.)
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from executors.data import Dataset
from executors.pruning.layer_fits import KernelResults, Original, fit_layer, input_tensors, walk
from executors.structure import Keep
from executors.structure.graph import Graph
from executors.training.evaluation import examples_of_shapes

__all__ = ["Original", "following", "refit"]

#: Maximum number of training examples for fitting layers.
_EXAMPLES: Final = 250


def refit(original: Original, keep: Keep, graph: Graph, data: Dataset) -> None:
    """Fit the kernels of a cut network to their outputs before the cut.

    Args:
        keep: The units left in each group.
        graph: The network after the cut, with the same layer names: either narrow, or with the weights of all
            other units at zero; some layers may be missing. Its weights are changed.
        data: Training data.
    """
    count = examples_of_shapes(original.structure.graph.shapes, _EXAMPLES)
    examples = data.subset(np.random.default_rng(0).permutation(len(data))[:count])
    fitted = frozenset(following(original, keep, graph))
    before = _UncutNetwork(original, examples, fitted)
    for node, inputs in walk(graph, input_tensors(graph, examples), {}):
        if node.name in fitted:
            fit_layer(node, inputs, before.results(node.name), keep)


def following(original: Original, keep: Keep, graph: Graph) -> Iterator[str]:
    """Yield the names of the layers that are called once and read other inputs than before the cut.

    Args:
        keep: The units left in each group.
        graph: The network after the cut, as for `refit`.
    """
    wires, changed = frozenset(_wires(original.structure.graph)), set[int]()
    calls = Counter(node.name for node in original.structure.graph.nodes)
    losing = {
        slot.layer
        for name, group in original.structure.groups.items()
        if not keep[name].all()
        for slot in group.slots
    }
    for node, wire in zip(graph.nodes, _wires(graph), strict=True):
        follows = wire not in wires or not changed.isdisjoint(node.inputs)
        if follows or node.name in losing:
            changed.add(node.output)
        if follows and calls[node.name] == 1:
            yield node.name


class _UncutNetwork:
    """The network before a cut, which is run only as far as results are requested.

    Args:
        examples: The examples to run it on.
        wanted: The layers with required results.
    """

    def __init__(self, original: Original, examples: Dataset, wanted: Collection[str]) -> None:
        self._original, self._wanted = original, wanted
        graph = original.structure.graph
        self._nodes = walk(graph, input_tensors(graph, examples), original.weights)
        self._results: dict[str, list[KernelResults | None]] = {}

    def results(self, layer: str) -> list[KernelResults | None]:
        """Return what each kernel of a layer computes that is called once; None if a kernel is too wide."""
        while layer not in self._results:
            node, inputs = next(self._nodes)
            if node.name in self._wanted:
                self._results[node.name] = self._original.results(node, inputs)
        return self._results.pop(layer)


def _wires(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Yield for each call its layer's name and the names of the layers that produce its inputs."""
    makers = {**graph.inputs, **{node.output: node.name for node in graph.nodes}}
    return ((node.name, *(makers[index] for index in node.inputs)) for node in graph.nodes)
