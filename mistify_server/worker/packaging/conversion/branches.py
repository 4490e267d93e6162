"""Networks with shared first layers in one file, in which each inference selects a branch (paper 6)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from executors.structure import fold_batch_norm
from executors.structure.exporting import NamedFunction, constant
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import Costs
from mistify.package.manifest import BRANCH_INPUT
from mistify_server.worker.packaging.conversion.converter import convert_for_any_batch
from mistify_server.worker.packaging.conversion.fixed_batch import with_fixed_batch
from mistify_server.worker.packaging.conversion.representative import Examples, Rows, one_by_one, typed
from mistify_server.worker.packaging.conversion.signatures import with_branch_signatures


@dataclass(frozen=True)
class BranchNetwork:
    """A branch including the base.

    Attributes:
        share: The budget, as a multiple of the goal's.
        model: The branch's network.
        costs: Costs of the network by axis.
    """

    share: float
    model: keras.Model
    costs: Costs


@dataclass(frozen=True)
class Branches:
    """The networks of a package by ascending share, and the layers that they share."""

    base: tuple[str, ...]
    networks: tuple[BranchNetwork, ...]

    @property
    def default(self) -> int:
        """Return the index of the goal's own network."""
        return [network.share for network in self.networks].index(1.0)


def convert_branches(
    branches: Branches, quantization: QuantizationConfig, examples: Examples | None = None
) -> bytes:
    """Convert branches to a `.tflite` with the index of the branch as an additional input.

    Each branch also has its own signatures, for any batch and for batch 1. Only the selected branch runs;
    indices are clamped to the valid range. Each branch includes the base's operators, but their weights are
    stored once.

    Args:
        quantization: The precision of the package; quantization-aware training is not possible.
        examples: Input -> training data for calibrating integer activations.
    """
    each = [constant(fold_batch_norm(network.model)) for network in branches.networks]

    def forward(*inputs: Any) -> Any:
        *tensors, branch = inputs
        return _chosen(branch, 0, [_applied(network, tensors) for network in each])

    like = NamedFunction.like(branches.networks[0].model, forward)
    choice = tf.TensorSpec((), tf.int32, BRANCH_INPUT)
    function = NamedFunction(forward, [*like.inputs, choice], like.outputs)
    rows = None if examples is None else partial(_rows, branches, examples)
    return with_fixed_batch(with_branch_signatures(convert_for_any_batch(function, quantization, rows)))


def _rows(branches: Branches, examples: Examples) -> Rows:
    """Yield the examples for each branch, because the converter calibrates only operators that run."""
    for number, network in enumerate(branches.networks):
        for row in one_by_one(typed(examples, network.model)):
            yield {**row, BRANCH_INPUT: np.array(number, np.int32)}


def _chosen(branch: Any, first: int, networks: Sequence[Callable[[], Any]]) -> Any:
    """Run one of the networks by a balanced tree of conditions, because LiteRT has no switch operator."""
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
