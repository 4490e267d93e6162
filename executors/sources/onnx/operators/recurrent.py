"""Recurrent layers: LSTM, GRU and simple RNN."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder, as_float, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.cells import CELLS, Weights, unrolled
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Merged, Value

layers = keras.layers

#: Number of directions of each value of `direction`.
_DIRECTIONS: Final = {"forward": 1, "reverse": 1, "bidirectional": 2}

#: Largest number of steps that are unrolled one by one, with about 20 layers each.
_MOST_STEPS: Final = 64


class _Arguments(NamedTuple):
    """The inputs of a node, in ONNX's order."""

    data: Argument
    kernel: Argument
    recurrent: Argument
    bias: Argument = None
    lengths: Argument = None
    state: Argument = None
    memory: Argument = None
    peepholes: Argument = None


@operator("GRU", "LSTM", "RNN")
def recurrent(builder: Builder, node: Node, *inputs: Argument) -> list[Value | None]:
    """Build a recurrent layer, or its steps if it has an initial state or peepholes, or returns a memory."""
    arguments = _Arguments(*inputs)
    value = _sequences(builder, node, arguments)
    _check_options(node, arguments, value.tensor.shape[1])
    weights = _weights(node, arguments)
    states = [
        _states(builder, node, arguments.state, weights),
        _states(builder, node, arguments.memory, weights),
    ]
    returns_memory = len(node.outputs) > 2 and node.read[2]
    has_peepholes = any(each.peepholes is not None for each in weights)
    if returns_memory or has_peepholes or any(state is not None for state in states):
        made = _steps(builder, node, value, weights, states)
    else:
        made = _layer(builder, node, value, weights)
    return [_placed(builder, node, each, weights) for each in made]


def _sequences(builder: Builder, node: Node, arguments: _Arguments) -> Value:
    """Return the data as [n, steps, features]."""
    value = builder.ordered(tensor(arguments.data))
    steps = 1 if node.get("layout", 0) else 0
    if value.batch != 1 - steps:
        raise UnsupportedNodeError(
            f"has the steps of its sequences along the batch; expected the batch on axis {1 - steps}: "
            "export the model with a free batch size and a fixed number of steps"
        )
    return builder.laid_out(value, (1 - steps, steps, 2))


def _check_options(node: Node, arguments: _Arguments, steps: int) -> None:
    lengths = optional(arguments.lengths, "length")
    if lengths is not None and np.any(lengths != steps):
        raise UnsupportedNodeError(f"has sequences of lengths other than {steps}")
    if node.get("clip") or node.get("input_forget"):
        raise UnsupportedNodeError("has a clip, or one gate for input and forgetting")
    count = _DIRECTIONS[node.get("direction", "forward")]
    names = [name.lower() for name in node.get("activations", CELLS[node.operator].activations * count)]
    if names not in ([*CELLS[node.operator].activations] * count, _relu(node) * count):
        raise UnsupportedNodeError(f"has the activations {', '.join(names)}; expected those of PyTorch")


def _relu(node: Node) -> list[str]:
    """Return the other activation of a simple RNN."""
    return ["relu"] if node.operator == "RNN" else []


def _weights(node: Node, arguments: _Arguments) -> list[Weights]:
    """Return the weights of each direction."""
    kernels, recurrents = (
        as_float(constant(each, "weights")) for each in (arguments.kernel, arguments.recurrent)
    )
    biases, gates = optional(arguments.bias, "bias"), CELLS[node.operator].gates
    peepholes, units = optional(arguments.peepholes, "peepholes"), recurrents.shape[-1]
    made = []
    for index, (kernel, inner) in enumerate(zip(kernels, recurrents, strict=True)):
        bias = None if biases is None else as_float(biases[index]).reshape(2, len(gates), units)
        own = None if peepholes is None else as_float(peepholes[index]).reshape(3, units)
        first, second = (each.reshape(len(gates), units, -1) for each in (kernel, inner))
        made.append(Weights(first, second, bias, own if np.any(own) else None))
    return made


def _states(builder: Builder, node: Node, state: Argument, weights: Sequence[Weights]) -> list[Any] | None:
    """Return the initial state [n, units] of each direction, or [units] if it is constant; None for zeros."""
    directions = range(len(weights))
    if isinstance(state, Merged):
        raise UnsupportedNodeError("has an initial state that merges the batch with another axis")
    if isinstance(state, Value):
        axis = 0 if node.get("layout", 0) else 1
        if state.batch != axis:
            raise UnsupportedNodeError(f"has an initial state whose batch is not on axis {axis}")
        value = builder.as_in_onnx(state)
        return [value.tensor[:, direction] for direction in directions]
    array = None if state is None else constant(state, "state")
    if array is None or not np.any(array):
        return None
    by_direction: Array = array.swapaxes(0, 1) if node.get("layout", 0) else array
    if np.any(by_direction != by_direction[:, :1]):
        raise UnsupportedNodeError("has a constant that differs along the batch")
    return [as_float(by_direction[direction, 0]) for direction in directions]


def _layer(builder: Builder, node: Node, value: Value, weights: Sequence[Weights]) -> tuple[Any, Any]:
    """Build a Keras layer; return its outputs [n, steps, directions * units], and the last ones."""
    name, cell = builder.weighted(node), CELLS[node.operator]
    backwards = node.get("direction", "forward") == "reverse"
    sequences = bool(node.read[0])
    options = cell.options(node.attributes) | {
        "units": weights[0].units,
        "use_bias": weights[0].bias is not None,
        "return_sequences": sequences,
    }
    layer = cell.layer(name=name, go_backwards=backwards, **options)
    if len(weights) == 2:
        back = cell.layer(name="backward", go_backwards=True, **options)
        ahead = cell.layer(name="forward", **options)
        layer = layers.Bidirectional(ahead, backward_layer=back, name=name)
    result = layer(value.tensor)
    set_weights(layer, *(array for each in weights for array in cell.stored(each, node.attributes)))
    if not sequences:
        return None, result
    if backwards:
        result = result[:, ::-1]
    return result, _last(node, result, weights[0].units) if any(node.read[1:2]) else None


def _last(node: Node, outputs: Any, units: int) -> Any:
    """Return the state after the last step of each direction: of the first position, if it is backwards."""
    direction = node.get("direction", "forward")
    if direction != "bidirectional":
        return outputs[:, 0 if direction == "reverse" else -1, :]
    return keras.ops.concatenate([outputs[:, -1, :units], outputs[:, 0, units:]], axis=-1)


def _steps(
    builder: Builder, node: Node, value: Value, weights: Sequence[Weights], states: Sequence[Any]
) -> tuple[Any, ...]:
    """Build each step; return the outputs [n, steps, directions * units], and the last states."""
    count = value.tensor.shape[1]
    if count > _MOST_STEPS:
        raise UnsupportedNodeError(
            f"has an initial state or peepholes, or returns its memory, with {count} steps; expected at most "
            f"{_MOST_STEPS}"
        )
    name, results = builder.weighted(node), []
    for index, each in enumerate(weights):
        made = unrolled(
            builder,
            value.tensor,
            each,
            cell=CELLS[node.operator],
            name=f"{name}.backward" if index == 1 else name,
            initial=[None if state is None else state[index] for state in states],
            backwards=index == 1 or node.get("direction", "forward") == "reverse",
            attributes=node.attributes,
        )
        results.append(made)
    joined = (
        parts[0] if len(parts) == 1 else keras.ops.concatenate(parts, axis=-1)
        for parts in zip(*results, strict=True)
    )
    return tuple(joined)


def _placed(builder: Builder, node: Node, made: Any, weights: Sequence[Weights]) -> Value | None:
    """Return an output [n, steps, directions * units] or [n, directions * units] with the axes of ONNX."""
    if made is None:
        return None
    shape = (*made.shape[1:-1], len(weights), weights[0].units)
    rank = 1 + len(shape)
    axes = tuple(range(rank)) if node.get("layout", 0) else (rank - 2, *range(rank - 2), rank - 1)
    return Value(builder.reshaped(made, shape), axes)
