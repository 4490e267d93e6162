"""The base of operator families that replace the kernels of a block one by one (CrowdHMTware III-A1).

Kernels are replaced in order from the input of the block on. Each replacement is fitted by least squares: it
reads what the block computes with the replacements so far, and its targets are the outputs of the original
kernel.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.adaptivenet.variants import VariantMaker
from executors.algorithms.crowdhmt.kernels import Kernel, Tensor, kernels_of
from executors.data import Dataset
from executors.structure import Structure, analyse, foldable, model_with
from executors.structure.graph import Graph, Node
from executors.training.evaluation import examples_of_shapes

#: A function of one tensor that replaces a layer.
Substitute = Callable[[Tensor], Tensor]

#: Examples used for fitting.
_EXAMPLES: Final = 250


class KernelMaker(VariantMaker):
    """A maker of variants of one block in which some kernels are replaced."""

    def span(self, amount: float) -> int:
        """Return 1: each variant replaces a single block."""
        return 1

    def make(self, blocks: Sequence[Structure], amount: float, features: Dataset) -> Graph | None:
        """Return the block with replaced kernels; None if that saves no multiply-adds."""
        (block,) = blocks
        replaced = self._replaced(block.graph, amount, features)
        return cheaper(model_with(block.graph, replaced), block) if replaced else None

    def chosen(self, graph: Graph) -> Sequence[Node]:
        """Return the calls of the kernels to replace in a block, by default all, in order."""
        return kernels_of(graph)

    @abstractmethod
    def substitute(self, kernel: Kernel, amount: float) -> Substitute | None:
        """Return the fitted replacement of a kernel, batch norm and activation; None to keep the kernel."""

    def _replaced(self, graph: Graph, amount: float, features: Dataset) -> dict[str, Substitute]:
        """Return the replacements by the names of layers; those of batch norms do nothing."""
        norms = {maker.name: norm for norm, maker in foldable(graph).items()}
        chosen = {node.name for node in self.chosen(graph)}
        replaced: dict[str, Substitute] = {}
        before = examples_of(graph, features)
        after = dict(before)
        for node in graph.nodes:
            before[node.output] = outputs_of(node, before)
            if node.name in chosen:
                norm, (read,) = norms.get(node.name), node.inputs
                kernel = Kernel(node, norm, np.asarray(before[read]), np.asarray(after[read]))
                if substitute := self.substitute(kernel, amount):
                    replaced |= {node.name: substitute} | ({norm.name: _unchanged} if norm else {})
            if node.name in replaced:
                after[node.output] = replaced[node.name](after[node.inputs[0]])
            elif all(after[tensor] is before[tensor] for tensor in node.inputs):
                after[node.output] = before[node.output]
            else:
                after[node.output] = outputs_of(node, after)
        return replaced


def examples_of(graph: Graph, features: Dataset) -> dict[int, Tensor]:
    """Return some examples of the only input of a block."""
    count = examples_of_shapes(graph.shapes, _EXAMPLES)
    (tensor,), (array,) = graph.inputs, features.inputs.values()
    return {tensor: tf.constant(array[:count])}


def outputs_of(node: Node, tensors: dict[int, Tensor]) -> Tensor:
    """Return the output of a call for examples of its inputs."""
    args, kwargs = node.call_arguments(tensors.__getitem__)
    return node.layer(*args, **kwargs)


def cheaper(model: keras.Model, block: Structure) -> Graph | None:
    """Return the graph of a variant; None if it has as many multiply-adds as the block."""
    made = analyse(model, block.rules)
    return made.graph if made.network().flops < block.network().flops else None


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
