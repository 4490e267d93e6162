"""Low-rank and separable kernels, the first operator family (CrowdHMTware III-A1, eta1)."""

from collections.abc import Sequence

import numpy as np

from executors.algorithms.crowdhmt.base import KernelMaker, Substitute
from executors.algorithms.crowdhmt.kernels import (
    Array,
    Kernel,
    components,
    depthwise_layer,
    kernels_of,
    spatial_kernels,
    window_of,
)
from executors.pruning.least_squares import ridge_regression
from executors.structure.graph import Graph, Node


class LowRank(KernelMaker):
    """Variants with each kernel split into two, with fewer channels between them.

    The channels are the principal components of the kernel's outputs (Zhang et al., Accelerating Very Deep
    Convolutional Networks, 2015). The amount is the share of a kernel's multiply-adds that remains.
    """

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be between 0 and 1."""
        if not 0 < amount < 1:
            raise ValueError("a share of multiply-adds, above 0 and below 1")
        return super().span(amount)

    def chosen(self, graph: Graph) -> Sequence[Node]:
        """Return the spatial kernels; all kernels if there are none, as in feed-forward units.

        Beside spatial kernels, pointwise ones are cheap: halving them would cost accuracy for little.
        """
        return spatial_kernels(graph) or kernels_of(graph)

    def substitute(self, kernel: Kernel, amount: float) -> Substitute:
        """Return a kernel with few outputs, and a pointwise one that restores the channels."""
        columns, units = kernel.matrix.shape
        rank = max(1, int(amount * columns * units / (columns + units)))
        narrow = kernel.matrix @ components(kernel.targets)[:, :rank]
        weights, bias = ridge_regression(kernel.rows() @ narrow, kernel.targets)
        shape = (*kernel.node.layer.kernel.shape[:-1], rank)
        first = kernel.layer("narrow", narrow.reshape(shape))
        second = kernel.pointwise("wide", weights, bias)
        return lambda tensor: kernel.finished(second(first(tensor)))


class Separable(KernelMaker):
    """Variants with a depthwise and a pointwise convolution in place of each spatial one.

    The depthwise kernels are the best approximation of each input channel's kernels; the pointwise one is
    fitted. The amount is the number of depthwise kernels of each channel.
    """

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be a whole number."""
        if amount != int(amount) or amount < 1:
            raise ValueError("a whole number of kernels for each input channel, 1 or more")
        return super().span(amount)

    def chosen(self, graph: Graph) -> Sequence[Node]:
        """Return the kernels that sum over several positions; for others, nothing is saved."""
        return [node for node in spatial_kernels(graph) if window_of(node).padding != "causal"]

    def substitute(self, kernel: Kernel, amount: float) -> Substitute:
        """Return the two convolutions."""
        whole = kernel.node.layer.kernel
        depthwise = _depthwise(np.asarray(whole).reshape(-1, *whole.shape[-2:]), int(amount))
        rows = kernel.rows().reshape(-1, *depthwise.shape[:2])
        read = np.einsum("npc,pcm->ncm", rows, depthwise).reshape(len(rows), -1)
        weights, bias = ridge_regression(read, kernel.targets)
        first = depthwise_layer(kernel.named("depthwise"), kernel.window, depthwise)
        second = kernel.pointwise("pointwise", weights, bias)
        return lambda tensor: kernel.finished(second(first(tensor)))


def _depthwise(kernel: Array, multiplier: int) -> Array:
    """Return the kernels that best span those of each input channel [positions, C_in, multiplier].

    Args:
        kernel: [positions, C_in, C_out].
        multiplier: The number of kernels for each input channel, at most the number of positions.
    """
    directions, sizes, _ = np.linalg.svd(np.moveaxis(kernel, 0, 1), full_matrices=False)
    spanning = directions * np.sqrt(sizes)[:, None, :]
    return np.moveaxis(spanning[..., :multiplier], 0, 1)
