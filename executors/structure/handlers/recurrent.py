"""Recurrent layers."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.each_step import without_shapes
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape, TensorRef
from executors.structure.handlers.base import LayerHandler, mixes_channels, over, register
from executors.structure.lstm_memory import LSTMWithMemory
from mistify.costs.network import multiply_adds
from mistify.costs.operators import Operation, OperatorKind, elementwise, with_memory

layers = keras.layers


def _couple_cell(node: Node, cell: Any, read: Ids, space: ChannelSpace) -> Ids:
    """Bind kernels [C_in, gates * C_out], [C_out, gates * C_out], and biases of one or two rows."""
    activations = [cell.activation, getattr(cell, "recurrent_activation", cell.activation)]
    if any(map(mixes_channels, activations)):
        raise UnsupportedLayerError(f"layer {node.name!r} has an activation that mixes its units")
    channels = space.new(cell.units)
    gated: Ids = np.tile(channels, cell.kernel.shape[1] // cell.units)
    space.bind(node, cell.kernel, 0, Role.SUMS, read)
    space.bind(node, cell.kernel, 1, Role.MAKES, gated)
    space.bind(node, cell.recurrent_kernel, 0, Role.SUMS, channels)
    space.bind(node, cell.recurrent_kernel, 1, Role.MAKES, gated)
    if cell.use_bias:
        space.bind(node, cell.bias, len(cell.bias.shape) - 1, Role.MAKES, gated)
    return channels


def _sequence(node: Node, inputs: Sequence[Ids], space: ChannelSpace) -> Ids:
    """Return the channels of a layer's sequence, fixing the steps of a mask; refuse `stateful`."""
    if node.layer.stateful:
        raise UnsupportedLayerError(
            f"layer {node.name!r} is stateful; expected stateful=False, "
            "because packages process each example separately"
        )
    mask = node.argument("mask")
    if mask is not None:
        space.fix(inputs[mask])
    return inputs[node.argument("sequences") or 0]


def _initial_states(node: Node) -> list[int]:
    """Return the places of a layer's initial states among its inputs."""
    states = inspect.signature(node.layer.call).bind(*node.args, **node.kwargs).arguments.get("initial_state")
    return [
        node.inputs.index(state.index) for state in keras.tree.flatten(states) if isinstance(state, TensorRef)
    ]


def _resized(layer: keras.layers.Layer, units: int) -> dict[str, Any]:
    """Return the config of a recurrent layer inside a wrapper, for a new number of units."""
    return without_shapes(layer, {**layer.get_config(), "units": units, "unroll": True})


def _products(kernels: Sequence[Shape], inputs: Sequence[Shape]) -> int:
    """Count both kernels of every cell, at every step."""
    steps = inputs[0][1] or 0
    return sum(multiply_adds(c_in or 0, c_out or 0, s_out=steps) for c_in, c_out in kernels)


def _gates(kernels: Sequence[Shape]) -> int:
    """Return the number of gates, from a recurrent kernel [C_out, gates * C_out]."""
    return (kernels[1][1] or 0) // (kernels[1][0] or 1)


def _steps(kernels: Sequence[Shape], inputs: Sequence[Shape]) -> tuple[Operation, ...]:
    """Return a kernel for all steps, and for each the other kernel, their sum and the gates."""
    steps, gates, units = inputs[0][1] or 0, _gates(kernels), kernels[1][0] or 0
    (c_in, c_read), (c_state, c_out) = kernels
    of_all_steps = steps * (c_read or 0)
    return (
        # UNPACK copies the product to one tensor for each step.
        with_memory(Operation(OperatorKind.DENSE, steps, c_in or 0, c_read or 0), scratch=2 * of_all_steps),
        Operation(OperatorKind.DENSE, 1, c_state or 0, c_out or 0, times=steps),
        elementwise(OperatorKind.ADD, 1, gates * units, steps),
        elementwise(OperatorKind.ACTIVATION, 1, units, gates * steps),
        elementwise(OperatorKind.ADD, 1, units, gates * steps),
    )


#: Number of gates -> operators per step, for a simple RNN, a GRU and an LSTM; a cell without units has none.
_STEP_OPERATORS = {0: 0, 1: 3, 3: 14, 4: 12}


#: Operators that make the initial state, for any batch size, and multiply and divide the inputs.
_FIRST_OPERATORS = 10


def _operators(kernels: Sequence[Shape], inputs: Sequence[Shape]) -> int:
    """Return the operators of all steps: an unrolled layer repeats a step's operators."""
    of_step = _STEP_OPERATORS[_gates(kernels)]
    return _FIRST_OPERATORS + (inputs[0][1] or 0) * of_step if of_step else 0


@register(layers.GRU, layers.LSTM, layers.SimpleRNN, LSTMWithMemory)
class Recurrent(LayerHandler):
    """A cell called at every step. Unrolled, because LiteRT has no loop over steps for free batch sizes."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Sum over the channels of the input and of the previous step, and make the output channels."""
        channels = _couple_cell(node, node.layer.cell, _sequence(node, inputs, space), space)
        for state in _initial_states(node):
            space.tie(channels, inputs[state])
        return channels

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the units."""
        return {**layer.get_config(), "units": channels, "unroll": True}

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count the cell's multiply-adds, at every step."""
        return _products(weights[:2], inputs)

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Count the cell's operations, at every step."""
        return _steps(weights[:2], inputs)

    def operators(self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape]) -> int:
        """Count the cell's operators, at every step."""
        return _operators(weights[:2], inputs)


@register(layers.Bidirectional)
class Bidirectional(LayerHandler):
    """Two recurrent layers of one width, one of them backwards; Keras doubles the width on concatenation."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Tie the units of both layers; concatenate them unless they are added or multiplied."""
        read = _sequence(node, inputs, space)
        both = (node.layer.forward_layer, node.layer.backward_layer)
        if not all(isinstance(layer, layers.GRU | layers.LSTM | layers.SimpleRNN) for layer in both):
            raise UnsupportedLayerError(
                f"layer {node.name!r} wraps {type(both[0]).__name__}; expected a GRU, an LSTM or a SimpleRNN"
            )
        ahead, back = (_couple_cell(node, layer.cell, read, space) for layer in both)
        space.tie(ahead, back)
        return np.concatenate([ahead, back]) if node.layer.merge_mode == "concat" else ahead

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the units of both layers."""
        units = weights[1][0] or 0
        forward, backward = (_resized(one, units) for one in (layer.forward_layer, layer.backward_layer))
        return {**layer.get_config(), "layer": forward, "backward_layer": backward}

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count both cells' multiply-adds, at every step."""
        second = len(weights) // 2
        return _products([*weights[:2], *weights[second : second + 2]], inputs)

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Count both cells' operations, at every step."""
        second = len(weights) // 2
        joined = (over(OperatorKind.COPY, output),)
        return (*_steps(weights[:2], inputs), *_steps(weights[second : second + 2], inputs), *joined)

    def operators(self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape]) -> int:
        """Count both cells' operators times 8/7, because their longer names take that much more space."""
        return 2 * _operators(weights[:2], inputs) * 8 // 7
