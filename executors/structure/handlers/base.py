"""The base class of layer handlers, and shared code."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from executors.structure.channels import ChannelSpace, Ids
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape
from mistify.costs.operators import Operation, OperatorKind, elementwise, with_memory

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Window:
    """The input positions that a kernel [*size, C_in, C_out] sums over for each output position.

    Attributes:
        size: Positions along each axis between the batch and the channels; empty for a single position.
        strides: Distance between neighbouring output positions along each axis, in input positions.
        dilation: Distance between neighbouring kernel positions along each axis.
        padding: `same`, `valid` or `causal`.
    """

    size: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    padding: str = "valid"

    def of_step(self) -> "Window":
        """Return the same positions in one step of a sequence, whose steps are another first axis."""
        if not self.size:
            return self
        return Window((1, *self.size), (1, *self.strides), (1, *self.dilation), self.padding)


@dataclass(frozen=True)
class Product:
    """A kernel that sums over the channels of an input directly.

    Attributes:
        input: Index of the tensor among the inputs of the call.
        axis: The weight's axis with the input's channels.
        bias: The bias along the kernel's last axes; None if there is none.
        window: The positions that the kernel sums over, if the kernel alone computes the output; otherwise
            None.
        spread: Number of output positions over which an input position distributes its kernel.
    """

    input: int
    kernel: keras.Variable
    axis: int
    bias: keras.Variable | None
    window: Window | None = None
    spread: int = 1

    def added(self, constant: Array, rank: int) -> Array:
        """Return the change of an output position if a constant is added at every position of the kernel.

        It is the sum over the positions; for a transposed kernel, it is the average share of each output
        position (except at padded borders).

        Args:
            constant: [*positions, *outputs].
            rank: Number of axes of the outputs, as in a bias.
        """
        return np.asarray(constant.sum(axis=tuple(range(constant.ndim - rank))) / self.spread)


class LayerHandler(ABC):
    """A handler of one family of layers: the flow of channels, the narrowed layer, and its costs.

    Handlers are stateless. Channels are the last axis of every tensor (`channels_last`).

    Attributes:
        in_place: Whether the output needs no memory of its own in a packaged network.
        averages_channels: Whether a channel's output depends on the mean over all channels.
    """

    in_place = False
    averages_channels = False

    @abstractmethod
    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Tie the channels of one call, and bind them to weights.

        Args:
            node: A call of a built layer.
            inputs: For each input tensor, the numbers of its channels [C_in].
            output: Shape of the output tensor.
            space: Makes and ties channels, and binds them to weights.

        Returns:
            The numbers of the output's channels [C_out].

        Raises:
            UnsupportedLayerError: An option of the layer is not supported.
        """

    def least_channels(self, node: Node, output: Shape) -> int:
        """Return the minimum number of channels; with fewer, the output would not depend on the input.

        Args:
            output: Shape of the output tensor, whose number of channels does not matter.
        """
        return 1

    def adds_channels(self, node: Node) -> Sequence[int]:
        """Return the inputs whose channels are added up without weights, so that copies would count twice."""
        return ()

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernels in which an input channel's weights can compensate for another channel."""
        return ()

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Return the layer's config for new weight shapes and a new number of output channels.

        Args:
            weights: The new shapes of its weights.
            channels: Number of channels of the new output.
        """
        return dict(layer.get_config())

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Return the multiply-adds of one call at batch size 1, only for products of weights and channels.

        Args:
            weights: Shapes of the layer's weights.
            inputs: Shapes of the input tensors, batch dimension first.
            output: Shape of the output tensor.
        """
        return 0

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return the operations of one call in LiteRT at batch size 1: by default one pass over its output.

        Args:
            weights: Shapes of the layer's weights.
            inputs: Shapes of the input tensors, batch dimension first.
            output: Shape of the output tensor.
        """
        return () if self.in_place else (over(OperatorKind.ADD, output),)

    def adding_bias(self, node: Node, output: Shape) -> tuple[Operation, ...]:
        """Return the operation that adds a bias in LiteRT, or none if the layer's operator adds it.

        Args:
            output: Shape of the output tensor, batch dimension first.
        """
        return ()

    def operators(self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape]) -> int:
        """Return the number of operators of one call in the packaged file; 1 if it equals its operations."""
        return 1


HANDLERS: dict[type, LayerHandler] = {}


class MovesElements(LayerHandler):
    """Elements are copied to other places."""

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return a pass that moves the elements."""
        return (over(OperatorKind.COPY, output),)


def register(*layer_classes: type) -> Callable[[type[LayerHandler]], type[LayerHandler]]:
    """Return a class decorator that registers a handler for exactly these layer classes, not subclasses."""

    def add(handler: type[LayerHandler]) -> type[LayerHandler]:
        HANDLERS.update({layer_class: handler() for layer_class in layer_classes})
        return handler

    return add


def elements(shape: Shape) -> int:
    """Return the number of elements of a tensor at batch size 1.

    Raises:
        UnsupportedLayerError: A dimension other than the batch is free.
    """
    count = 1
    for dimension in shape[1:]:
        if dimension is None:
            raise UnsupportedLayerError(
                f"a tensor has the shape {shape}; expected fixed sizes after the batch"
            )
        count *= dimension
    return count


def positions(shape: Shape) -> int:
    """Return the positions (height x width, or steps) of a tensor at batch size 1: elements / channels."""
    return elements(shape[:-1])


def over(kind: OperatorKind, shape: Shape, times: int = 1, temporaries: int = 0) -> Operation:
    """Return a pass over the elements of a tensor.

    Args:
        kind: The operation on each element.
        shape: Shape of the tensor, batch dimension first.
        times: Number of passes.
        temporaries: Number of tensors of the same shape between its operators.
    """
    operation = elementwise(kind, positions(shape), shape[-1] or 1, times)
    return with_memory(operation, temporaries * elements(shape) if temporaries else 0)


#: Activations that LiteRT fuses into the operator before them.
_FUSED = frozenset({keras.activations.linear, keras.activations.relu, keras.activations.relu6})


#: Activations that LiteRT computes with one operator.
_ONE_OPERATOR = frozenset(
    {
        keras.activations.elu,
        keras.activations.exponential,
        keras.activations.gelu,
        keras.activations.hard_silu,
        keras.activations.leaky_relu,
        keras.activations.log_softmax,
        keras.activations.sigmoid,
        keras.activations.softmax,
        keras.activations.tanh,
    }
)

#: Activations whose operator ELU has no integer kernel in LiteRT.
_FLOAT_ONLY = frozenset({keras.activations.elu, keras.activations.selu})


def activated(activation: object, output: Shape) -> tuple[Operation, ...]:
    """Return the operation of an activation function on a tensor, or none if it is fused.

    Of several operators, as for `silu` (a sigmoid and a product), one keeps its result for a later one.
    """
    if activation in _FUSED:
        return ()
    kind = OperatorKind.SOFTMAX if activation is keras.activations.softmax else OperatorKind.ACTIVATION
    scratch = 0 if activation in _ONE_OPERATOR else elements(output)
    return (with_memory(over(kind, output), scratch, float_only=activation in _FLOAT_ONLY),)


def require_channels_last(node: Node) -> None:
    """Refuse layers with channels on another axis than the last."""
    if getattr(node.layer, "data_format", "channels_last") != "channels_last":
        raise UnsupportedLayerError(
            f"layer {node.name!r} is channels_first; expected channels_last; convert the model"
        )


_POINTWISE = frozenset(
    {
        keras.activations.celu,
        keras.activations.elu,
        keras.activations.exponential,
        keras.activations.gelu,
        keras.activations.hard_shrink,
        keras.activations.hard_sigmoid,
        keras.activations.hard_silu,
        keras.activations.hard_tanh,
        keras.activations.leaky_relu,
        keras.activations.linear,
        keras.activations.log_sigmoid,
        keras.activations.mish,
        keras.activations.relu,
        keras.activations.relu6,
        keras.activations.selu,
        keras.activations.sigmoid,
        keras.activations.silu,
        keras.activations.soft_shrink,
        keras.activations.softplus,
        keras.activations.softsign,
        keras.activations.sparse_plus,
        keras.activations.sparse_sigmoid,
        keras.activations.squareplus,
        keras.activations.tanh,
        keras.activations.tanh_shrink,
        keras.activations.threshold,
    }
)


#: Other activations without interaction between channels, by module and name.
_POINTWISE_ELSEWHERE = frozenset({("keras_hub.src.utils.keras_utils", "gelu_approximate")})


def mixes_channels(activation: object) -> bool:
    """Check whether an output channel of an activation function may depend on other channels."""
    place = getattr(activation, "__module__", ""), getattr(activation, "__name__", "")
    return activation not in _POINTWISE and place not in _POINTWISE_ELSEWHERE
