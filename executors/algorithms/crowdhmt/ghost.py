"""Ghost modules, the fourth operator family (CrowdHMTware III-A1, eta4)."""

from collections.abc import Sequence
from typing import Final

import keras
import numpy as np

from executors.algorithms.crowdhmt.base import KernelMaker, Substitute
from executors.algorithms.crowdhmt.kernels import (
    Array,
    Kernel,
    Tensor,
    depthwise_layer,
    kernels_of,
    spatial_kernels,
)
from executors.pruning.least_squares import ridge_regression
from executors.pruning.windows import window_rows
from executors.structure.graph import Graph, Node
from executors.structure.handlers import Window

layers = keras.layers

#: Size of the depthwise kernels along each axis.
_SIZE: Final = 3


class Ghost(KernelMaker):
    """Variants with a Ghost module in place of each convolution (Han et al., GhostNet, 2020).

    The convolution computes some of the channels, and depthwise convolutions of these the others. The amount
    is the share of channels that the convolution computes, such as 0.5 or 0.25.
    """

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be one half, one third, and so on."""
        if not 0 < amount < 1 or abs(1 / amount - round(1 / amount)) > 0.05:
            raise ValueError("one divided by a whole number, such as 0.5, 0.33 or 0.25")
        return super().span(amount)

    def chosen(self, graph: Graph) -> Sequence[Node]:
        """Return the spatial convolutions; the pointwise ones if there are no others, as in MobileNets."""
        pointwise = (node for node in kernels_of(graph) if not isinstance(node.layer, layers.Dense))
        return spatial_kernels(graph) or list(pointwise)

    def substitute(self, kernel: Kernel, amount: float) -> Substitute | None:
        """Return the module; None if the channels cannot be divided into equally large parts."""
        count, rest = divmod(kernel.units, round(1 / amount))
        if rest:
            return None
        primary = kernel.fitted("primary", channels=slice(0, count))
        joined = layers.Concatenate(name=kernel.named("joined"))

        def computed(tensor: Tensor) -> Tensor:
            return kernel.finished(primary(tensor), slice(0, count), "-1")

        ghosts = _ghosts(kernel, np.asarray(computed(kernel.inputs)))

        def module(tensor: Tensor) -> Tensor:
            first = computed(tensor)
            return joined([first, kernel.finished(ghosts(first), slice(count, None), "-2")])

        return module


def _ghosts(kernel: Kernel, primary: Array) -> keras.Layer:
    """Return the depthwise convolution, all of whose kernels are fitted in one batched regression.

    Args:
        primary: The channels that the convolution computes, normalized [examples, ..., channels].
    """
    rank, channels = primary.ndim - 2, primary.shape[-1]
    window = Window((_SIZE,) * rank, (1,) * rank, (1,) * rank, "same")
    rows = window_rows(primary, window, kernel.places).reshape(-1, _SIZE**rank, channels)
    targets = kernel.targets[:, channels:].reshape(len(rows), channels, -1)
    weights, biases = ridge_regression(np.moveaxis(rows, -1, 0), np.moveaxis(targets, 1, 0))
    return depthwise_layer(kernel.named("ghosts"), window, np.moveaxis(weights, 0, 1), biases.reshape(-1))
