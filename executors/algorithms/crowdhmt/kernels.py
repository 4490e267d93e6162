"""The kernels of a block, and layers fitted to their outputs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt

from executors.pruning.least_squares import ridge_regression
from executors.pruning.windows import places_of, sampled, window_rows
from executors.structure.graph import Graph, Node
from executors.structure.handlers import Window, handler_of

layers = keras.layers

Array = npt.NDArray[Any]
Tensor = Any

#: The layers with a kernel that families replace.
_REPLACEABLE: Final = (layers.Conv1D, layers.Conv2D, layers.Dense)

#: Depthwise layers by the number of axes that a kernel moves along.
_DEPTHWISE: Final = {1: layers.DepthwiseConv1D, 2: layers.DepthwiseConv2D}

#: Positions in the outputs used for fitting: a number per column, with a minimum and a maximum.
_PLACES_PER_COLUMN: Final = 24
_FEWEST_PLACES: Final = 4_000
_MOST_PLACES: Final = 24_000


@dataclass(frozen=True)
class Kernel:
    """A convolution or dense layer of a block, with the data for fitting its replacement.

    Attributes:
        node: The only call of the layer.
        norm: The batch norm behind it that packaging folds into it; None if there is none.
        before: Input of the layer in the original block [examples, ..., C_in].
        inputs: Input of its replacement [examples, ..., C_in].
    """

    node: Node
    norm: Node | None
    before: Array
    inputs: Array

    @property
    def window(self) -> Window:
        """The input positions that the kernel sums over."""
        return window_of(self.node)

    @property
    def units(self) -> int:
        """The number of output channels."""
        return int(self.node.layer.kernel.shape[-1])

    @cached_property
    def matrix(self) -> Array:
        """The kernel as a matrix [positions * C_in, C_out]."""
        return np.asarray(self.node.layer.kernel).reshape(-1, self.units)

    @cached_property
    def places(self) -> tuple[Array, ...]:
        """Output positions at which replacements are fitted, as indices along each axis."""
        return places_for(places_of(self.before.shape, self.window), len(self.matrix))

    @cached_property
    def targets(self) -> Array:
        """The original outputs at `places` without the activation [places, C_out]."""
        return self.original(self.places)

    def original(self, places: Sequence[Array]) -> Array:
        """Return the original outputs at some positions, without the activation [places, C_out].

        Args:
            places: Indices along all axes of the output but the last.
        """
        layer = self.node.layer
        constant = np.asarray(layer.bias) if layer.use_bias else 0.0
        return window_rows(self.before, self.window, places) @ self.matrix + constant

    def rows(self, window: Window | None = None) -> Array:
        """Return the inputs that a window sums over [places, positions * C_in]; by default its own window."""
        return window_rows(self.inputs, window or self.window, self.places)

    def layer(self, name: str, kernel: Array, bias: Array | None = None, **changes: Any) -> keras.Layer:
        """Return a layer of the same class with another kernel, and without an activation.

        Args:
            name: Appended to the name of the original layer.
            kernel: [*positions, C_in, C_out].
            bias: [C_out]; None for a layer without bias.
            changes: Changes to the settings of the original layer.
        """
        config = self.node.layer.get_config()
        own: dict[str, Any] = {"activation": "linear", "use_bias": bias is not None}
        if isinstance(self.node.layer, layers.Dense):
            own["units"] = kernel.shape[-1]
        else:
            own |= {"filters": kernel.shape[-1], "kernel_size": kernel.shape[:-2]}
        made = type(self.node.layer).from_config({**config, **own, **changes, "name": self.named(name)})
        return with_weights(made, self.inputs.shape[:-1] + kernel.shape[-2:-1], kernel, bias)

    def fitted(self, name: str, window: Window | None = None, channels: slice = slice(None)) -> keras.Layer:
        """Return a layer fitted to some of the outputs.

        Args:
            window: The positions that it sums over; None for as many as the original kernel.
            channels: The output channels that it fits, among those of the original layer.
        """
        window = window or self.window
        weights, bias = ridge_regression(self.rows(window), self.targets[:, channels])
        return self.layer(name, weights.reshape(*window.size, self.inputs.shape[-1], -1), bias)

    def pointwise(self, name: str, kernel: Array, bias: Array | None = None) -> keras.Layer:
        """Return a layer of the same class that sums over one position; `kernel` is [C_in, C_out]."""
        if isinstance(self.node.layer, layers.Dense):
            return self.layer(name, kernel, bias)
        one = (1,) * len(self.window.size)
        return self.layer(name, kernel.reshape(*one, *kernel.shape), bias, strides=one, dilation_rate=one)

    def finished(self, tensor: Tensor, channels: slice = slice(None), name: str = "") -> Tensor:
        """Return outputs of a replacement after the original batch norm and activation.

        Args:
            tensor: Some of the kernel's output channels.
            channels: The numbers of these channels among all outputs.
            name: Distinguishes several calls.
        """
        if self.norm is not None:
            norm, config = self.norm.layer, self.norm.layer.get_config()
            part = type(norm).from_config({**config, "name": self.named(f"norm{name}")})
            weights = (np.asarray(weight)[channels] for weight in norm.weights)
            tensor = with_weights(part, tensor.shape, *weights)(tensor)
        activation = self.node.layer.activation
        if activation is keras.activations.linear:
            return tensor
        return layers.Activation(activation, name=self.named(f"activation{name}"))(tensor)

    def named(self, suffix: str) -> str:
        """Return the name of a new layer."""
        return f"{self.node.name}-{suffix}"


def kernels_of(graph: Graph) -> list[Node]:
    """Return the calls of layers with one ungrouped kernel that are called once."""
    calls = Counter(node.name for node in graph.nodes)
    return [
        node
        for node in graph.nodes
        if type(node.layer) in _REPLACEABLE
        and calls[node.name] == 1
        and getattr(node.layer, "groups", 1) == 1
    ]


def spatial_kernels(graph: Graph) -> list[Node]:
    """Return the replaceable kernels that sum over several positions."""
    return [node for node in kernels_of(graph) if any(size > 1 for size in window_of(node).size)]


def padded_kernels(graph: Graph) -> list[Node]:
    """Return the spatial kernels with one output for each stride, whatever their size."""
    return [node for node in spatial_kernels(graph) if window_of(node).padding != "valid"]


def window_of(node: Node) -> Window:
    """Return the input positions that a replaceable kernel sums over."""
    (product,) = handler_of(node.name, node.layer).products(node)
    return product.window or Window()


def places_for(shape: Sequence[int], columns: int) -> tuple[Array, ...]:
    """Return positions for a regression on a number of columns, as indices along each axis of a shape."""
    count = min(max(_PLACES_PER_COLUMN * columns, _FEWEST_PLACES), _MOST_PLACES)
    return sampled(shape, count, np.random.default_rng(0))


def components(channels: Array) -> Array:
    """Return the principal components [channels, components] of channels [places, channels].

    The component with the largest variance comes first.
    """
    return np.linalg.eigh(np.cov(channels.T.astype(np.float64)))[1][:, ::-1]


def depthwise_layer(name: str, window: Window, kernel: Array, bias: Array | None = None) -> keras.Layer:
    """Return a depthwise convolution.

    Args:
        kernel: [positions, C_in, multiplier].
        bias: [C_in * multiplier]; None for a layer without bias.
    """
    _, channels, multiplier = kernel.shape
    layer = _DEPTHWISE[len(window.size)](
        window.size, window.strides, window.padding, multiplier,
        dilation_rate=window.dilation, use_bias=bias is not None, name=name,
    )  # fmt: skip
    shape = (None, *(None for _ in window.size), channels)
    return with_weights(layer, shape, kernel.reshape(*window.size, channels, multiplier), bias)


def with_weights(layer: keras.Layer, shape: Sequence[int | None], *weights: Array | None) -> keras.Layer:
    """Return a new layer, built for inputs of a shape, with these weights."""
    layer.build(tuple(shape))
    layer.set_weights([weight for weight in weights if weight is not None])
    return layer
