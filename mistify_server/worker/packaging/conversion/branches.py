"""Networks that share their first layers as one; each inference is told what comes after them (paper 6)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from executors.structure import Structure, analyse, fold_batch_norm
from mistify.config.quantization import QuantizationConfig
from mistify.costs.budget import Costs, memory_axis
from mistify.costs.quantization import Quantization
from mistify.package.manifest import BRANCH_INPUT
from mistify_server.worker.packaging.conversion.converter import Function, constant, convert_function
from mistify_server.worker.packaging.conversion.representative import Examples, Rows, one_by_one, typed
from mistify_server.worker.packaging.conversion.signatures import with_branch_signatures


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


def convert_branches(
    branches: Branches, quantization: QuantizationConfig, examples: Examples | None = None
) -> bytes:
    """A `.tflite` with one more input, the number of the branch to run, and a signature for each branch.

    Only the branch that is chosen runs; a number that is too small or too large means the nearest. Each has
    the base among its operators, whose weights are stored once.

    Args:
        branches: The networks.
        quantization: What the package computes with, but for training that is aware of it.
        examples: Training data by input, from which integer packages take the scales of activations.
    """
    each = [constant(fold_batch_norm(network.model)) for network in branches.networks]

    def forward(*inputs: Any) -> Any:
        *given, branch = inputs
        return _chosen(branch, 0, [_applied(network, given) for network in each])

    like = Function.like(branches.networks[0].model, forward)
    choice = tf.TensorSpec((), tf.int32, BRANCH_INPUT)
    function = Function(forward, [*like.inputs, choice], like.outputs)
    rows = None if examples is None else partial(_rows, branches, examples)
    return with_branch_signatures(convert_function(function, quantization, rows))


def _rows(branches: Branches, examples: Examples) -> Rows:
    """The examples for each branch, as the converter sees what runs."""
    for number, network in enumerate(branches.networks):
        for row in one_by_one(typed(examples, network.model)):
            yield {**row, BRANCH_INPUT: np.array(number, np.int32)}


def _chosen(branch: Any, first: int, networks: Sequence[Callable[[], Any]]) -> Any:
    """A balanced tree of choices: LiteRT has no choice among many."""
    if len(networks) == 1:
        return networks[0]()
    half = len(networks) // 2
    return tf.cond(
        branch < first + half,
        lambda: _chosen(branch, first, networks[:half]),
        lambda: _chosen(branch, first + half, networks[half:]),
    )


def _applied(network: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[], Any]:
    return lambda: tf.nest.flatten(network(*inputs))


def _weight_bytes(structure: Structure, layers: Collection[str], precision: Quantization) -> int:
    """Bytes of the weights of some layers."""
    network = structure.network()
    kept = tuple(layer for layer in network.layers if layer.name in layers)
    return replace(network, layers=kept).weight_bytes(precision)
