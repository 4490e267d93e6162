"""Fire modules, the second operator family (CrowdHMTware III-A1, eta2)."""

from collections.abc import Sequence
from dataclasses import replace

import keras
import numpy as np

from executors.algorithms.crowdhmt.base import KernelMaker, Substitute
from executors.algorithms.crowdhmt.kernels import Kernel, Tensor, components, padded_kernels
from executors.structure.graph import Graph, Node

layers = keras.layers


class Fire(KernelMaker):
    """Variants with a Fire module in place of each spatial convolution (Iandola et al., SqueezeNet, 2016).

    A pointwise convolution squeezes the channels; half of the outputs are then computed by a pointwise
    convolution, half by one of the original size. Unlike in SqueezeNet, the squeezed channels have no
    activation: they are the principal components of the inputs. The amount is their share of the input
    channels.
    """

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be between 0 and 1."""
        if not 0 < amount < 1:
            raise ValueError("a share of the input channels, above 0 and below 1")
        return super().span(amount)

    def chosen(self, graph: Graph) -> Sequence[Node]:
        """Return the padded kernels: pointwise ones have equally many outputs."""
        return padded_kernels(graph)

    def substitute(self, kernel: Kernel, amount: float) -> Substitute | None:
        """Return the module; None if the kernel has a single output channel."""
        channels, half = kernel.inputs.shape[-1], kernel.units // 2
        if half == 0:
            return None
        narrow = components(kernel.inputs.reshape(-1, channels))[:, : max(1, round(amount * channels))]
        squeeze = kernel.pointwise("squeeze", narrow)
        squeezed = replace(kernel, inputs=kernel.inputs @ narrow.astype(np.float32))
        one = replace(kernel.window, size=(1,) * len(kernel.window.size))
        small = squeezed.fitted("expand-1", one, slice(0, half))
        large = squeezed.fitted("expand-2", None, slice(half, None))
        joined = layers.Concatenate(name=kernel.named("joined"))

        def module(tensor: Tensor) -> Tensor:
            narrowed = squeeze(tensor)
            first = kernel.finished(small(narrowed), slice(0, half), "-1")
            second = kernel.finished(large(narrowed), slice(half, None), "-2")
            return joined([first, second])

        return module
