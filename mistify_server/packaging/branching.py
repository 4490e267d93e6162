"""Networks that share their first layers as one; each inference is told what comes after them (paper 6)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from executors.structure import Structure, analyse, fold_batch_norm, split
from executors.structure.graph import read_graph
from mistify.budget import Costs, memory_axis
from mistify.manifest import BRANCH_INPUT
from mistify.quantization import Quantization, QuantizationConfig
from mistify_server.packaging.conversion import Function, constant, convert_function


@dataclass(frozen=True)
class BranchNetwork:
    """A branch with the base: its budget as a multiple of the goal's, its network and what that costs."""

    share: float
    model: keras.Model
    costs: Costs


@dataclass(frozen=True)
class Branches:
    """The networks of a package, ascending by their shares, and the layers that they share."""

    base: tuple[str, ...]
    networks: tuple[BranchNetwork, ...]

    @property
    def default(self) -> int:
        """The number of the goal's own network."""
        return [network.share for network in self.networks].index(1.0)

    def memory(self, precision: Quantization) -> Costs:
        """What all branches take together: their weights, with the base once, and the most activations."""
        structures = [analyse(network.model) for network in self.networks]
        peak = max(structure.network().peak_activations for structure in structures)
        base = _weight_bytes(structures[0], self.base, precision)
        weights = sum(structure.network().weight_bytes(precision) - base for structure in structures) + base
        return {memory_axis(precision): float(weights + precision.storage.activation * peak)}


def convert_branches(branches: Branches, quantization: QuantizationConfig) -> bytes:
    """A `.tflite` with one more input, the number of the branch to run; the base is stored once.

    Only the branch that is chosen runs; a number that is too small or too large means the nearest.
    """
    folded = [fold_batch_norm(network.model) for network in branches.networks]
    parts = [split(read_graph(model), branches.base) for model in folded]
    base = constant(_built(parts[0][0]))
    tails = [constant(_built(tail)) for _, tail in parts]

    def forward(*inputs: Any) -> Any:
        *given, branch = inputs
        shared = tf.nest.flatten(base(*given)) if branches.base else given
        return _chosen(branch, 0, [_applied(tail, shared) for tail in tails])

    like = Function.like(branches.networks[0].model, forward)
    choice = tf.TensorSpec((), tf.int32, BRANCH_INPUT)
    return convert_function(Function(forward, [*like.inputs, choice], like.outputs), quantization)


def _chosen(branch: Any, first: int, tails: Sequence[Callable[[], Any]]) -> Any:
    """A balanced tree of choices: LiteRT has no choice among many."""
    if len(tails) == 1:
        return tails[0]()
    half = len(tails) // 2
    return tf.cond(
        branch < first + half,
        lambda: _chosen(branch, first, tails[:half]),
        lambda: _chosen(branch, first + half, tails[half:]),
    )


def _applied(tail: Callable[..., Any], shared: Sequence[Any]) -> Callable[[], Any]:
    return lambda: tf.nest.flatten(tail(*shared))


def _built(graph: Any) -> keras.Model:
    return graph.build(lambda _, layer: layer, {})


def _weight_bytes(structure: Structure, layers: Collection[str], precision: Quantization) -> int:
    """Bytes of the weights of some layers."""
    network = structure.network()
    kept = tuple(layer for layer in network.layers if layer.name in layers)
    return replace(network, layers=kept).weight_bytes(precision)
