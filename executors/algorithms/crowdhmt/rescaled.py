"""Smaller kernels and a lower resolution, the third operator family (CrowdHMTware III-A1, eta3)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import keras
import numpy as np

from executors.algorithms.crowdhmt.base import KernelMaker, Substitute
from executors.algorithms.crowdhmt.branches import branches
from executors.algorithms.crowdhmt.kernels import Kernel, kernels_of, padded_kernels, places_for
from executors.pruning.least_squares import ridge_regression
from executors.pruning.windows import places_of, window_rows
from executors.structure.graph import Graph, Node

#: The only share of the resolution at which a branch can run.
_HALF: Final = 0.5


class SmallerKernel(KernelMaker):
    """Variants whose last spatial convolution has a smaller kernel; the amount is its size."""

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be a whole number."""
        if amount != int(amount) or amount < 1:
            raise ValueError("a whole number of positions, 1 or more")
        return super().span(amount)

    def chosen(self, graph: Graph) -> Sequence[Node]:
        """Return the last padded kernel, so that smaller ones have equally many outputs."""
        return padded_kernels(graph)[-1:]

    def substitute(self, kernel: Kernel, amount: float) -> Substitute | None:
        """Return a convolution that sums over fewer positions; None if it does not."""
        size = tuple(min(int(amount), one) for one in kernel.window.size)
        if size == kernel.window.size:
            return None
        layer = kernel.fitted("small", replace(kernel.window, size=size))
        return lambda tensor: kernel.finished(layer(tensor))


class LowResolution(KernelMaker):
    """Variants whose residual branches run at half the resolution; the amount has to be 0.5.

    The first convolution of a branch gets a stride of 2. The last one is fitted to the means over 2 x 2
    positions of the original outputs; its outputs are enlarged by bilinear interpolation.
    """

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be 0.5."""
        if amount != _HALF:
            raise ValueError("0.5, half the resolution")
        return super().span(amount)

    def chosen(self, graph: Graph) -> Sequence[Node]:
        """Return the first and the last convolution of each branch between tensors of equal size."""
        return list(_ends(graph))

    def substitute(self, kernel: Kernel, amount: float) -> Substitute:
        """Return the first convolution with a stride, or the last one with interpolation behind it."""
        if kernel.inputs.shape == kernel.before.shape:
            weights = [np.asarray(weight) for weight in kernel.node.layer.weights]
            first = kernel.layer("strided", *weights, strides=2)
            return lambda tensor: kernel.finished(first(tensor))
        last = _fitted_to_means(kernel)
        enlarged = keras.layers.UpSampling2D(interpolation="bilinear", name=kernel.named("enlarged"))
        return lambda tensor: enlarged(kernel.finished(last(tensor)))


def _ends(graph: Graph) -> Iterator[Node]:
    kernels = [node for node in kernels_of(graph) if type(node.layer) is keras.layers.Conv2D]
    for branch in branches(graph):
        own = [node for node in kernels if node in branch.nodes]
        read, made = graph.shapes[branch.start], graph.shapes[branch.nodes[-1].output]
        begins = [node for node in branch.nodes if branch.start in node.inputs]
        if len(own) > 1 and begins == own[:1] and read[1:3] == made[1:3] and _are_even(read[1:3]):
            yield from (own[0], own[-1])


def _are_even(sizes: Sequence[int | None]) -> bool:
    return all(size and size % 2 == 0 for size in sizes)


def _fitted_to_means(kernel: Kernel) -> keras.Layer:
    """Return the last convolution of a branch, fitted to the means of its original outputs."""
    places = places_for(places_of(kernel.inputs.shape, kernel.window), len(kernel.matrix))
    example, *along = places
    corners = product(*([2 * one, 2 * one + 1] for one in along))
    means = np.mean([kernel.original((example, *corner)) for corner in corners], axis=0)
    weights, bias = ridge_regression(window_rows(kernel.inputs, kernel.window, places), means)
    return kernel.layer("low", weights.reshape(kernel.node.layer.kernel.shape), bias)
