"""The cells of recurrent layers: their weights in Keras, and their steps as layers of their own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder, set_weights

layers, ops = keras.layers, keras.ops


@dataclass(frozen=True)
class Weights:
    """The weights of a cell by gate, in ONNX's order of gates.

    Attributes:
        kernel: [gates, units, features].
        recurrent: [gates, units, units].
        bias: The biases of both products [2, gates, units]; None if there are none.
        peepholes: The factors of an LSTM's memory in its first three gates [3, units]; None without them.
    """

    kernel: Array
    recurrent: Array
    bias: Array | None
    peepholes: Array | None = None

    @property
    def units(self) -> int:
        """The number of units."""
        return int(self.recurrent.shape[-1])


class Options(NamedTuple):
    """The node's attributes, and the peepholes of `Weights`, for each step."""

    attributes: Mapping[str, Any]
    peepholes: Array | None


@dataclass(frozen=True)
class Cell:
    """A kind of cell.

    Attributes:
        layer: Its layer in Keras.
        gates: Its gates, in ONNX's order.
        order: For each of Keras's gates, its index in `gates`.
        activations: ONNX's default activations.
        step: Computes a step from the inputs' products by gate, a function that multiplies a tensor by a
            recurrent kernel, the state, the memory and options; returns the new state and memory.
    """

    layer: type[keras.layers.Layer]
    gates: tuple[str, ...]
    order: tuple[int, ...]
    activations: tuple[str, ...]
    step: Callable[..., tuple[Any, Any]]

    def options(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the Keras layer that depend on the node."""
        if self.layer is layers.SimpleRNN:
            return {"activation": _simple(attributes)}
        return {"reset_after": _reset_after(attributes)} if self.layer is layers.GRU else {}

    def stored(self, weights: Weights, attributes: Mapping[str, Any]) -> list[Array]:
        """Return the weights of the Keras layer."""
        order = list(self.order)
        kernels = [each[order].reshape(-1, each.shape[-1]).T for each in (weights.kernel, weights.recurrent)]
        if weights.bias is None:
            return kernels
        biases = weights.bias[:, order].reshape(2, -1)
        both = self.layer is layers.GRU and _reset_after(attributes)
        return [*kernels, biases if both else biases.sum(0)]


def _reset_after(attributes: Mapping[str, Any]) -> bool:
    return bool(attributes.get("linear_before_reset", 0))


def _simple(attributes: Mapping[str, Any]) -> str:
    return str(attributes.get("activations", ["tanh"])[0]).lower()


def unrolled(
    builder: Builder,
    data: Any,
    weights: Weights,
    *,
    cell: Cell,
    name: str,
    initial: Sequence[Any],
    backwards: bool,
    attributes: Mapping[str, Any],
) -> tuple[Any, Any, Any]:
    """Build the steps of a cell from dense layers, one for each gate and product, which all steps share.

    Args:
        data: [n, steps, features].
        initial: The initial state and memory: [n, units], [units] if it is constant, None for zeros.

    Returns:
        The outputs [n, steps, units], the last state and the last memory [n, units].
    """
    inner, products = {}, {}
    separate = "candidate" if _reset_after(attributes) else ""
    for index, gate in enumerate(cell.gates):
        first, second = _biases(weights, index, gate == separate)
        products[gate] = _dense(builder, f"{name}.{gate}", weights.kernel[index], first)(data)
        inner[gate] = _dense(builder, f"{name}.{gate}.recurrent", weights.recurrent[index], second)
    state, memory = (_initial(each, products[cell.gates[0]][:, 0]) for each in initial)
    options = Options(attributes, weights.peepholes)
    steps = data.shape[1]
    made = []
    for step in range(steps)[::-1] if backwards else range(steps):
        own = {gate: product[:, step] for gate, product in products.items()}
        state, memory = cell.step(own, inner, state, memory, options)
        made.append(layers.Reshape((1, weights.units), name=builder.helper("reshape"))(state))
    made = made[::-1] if backwards else made
    joined = made[0] if steps == 1 else layers.Concatenate(axis=1, name=builder.helper(f"{name}.steps"))(made)
    return joined, state, memory


def _biases(weights: Weights, gate: int, separate: bool) -> tuple[Array | None, Array | None]:
    """Return the biases of a gate's two products; their sum is the first, unless they are separate."""
    if weights.bias is None:
        return None, None
    first, second = weights.bias[:, gate]
    return (first, second) if separate else (first + second, None)


def _dense(builder: Builder, name: str, kernel: Array, bias: Array | None) -> Any:
    """Return a layer with a kernel [units, features]."""
    layer = layers.Dense(len(kernel), use_bias=bias is not None, name=builder.helper(name))
    layer.build((None, kernel.shape[1]))
    set_weights(layer, np.ascontiguousarray(kernel.T), bias)
    return layer


def _initial(state: Any, like: Any) -> Any:
    """Return an initial state [n, units] for each example."""
    if state is not None and not isinstance(state, np.ndarray):
        return state
    zeros = like * 0.0
    return zeros if state is None else ops.add(zeros, state)


def _lstm(own: Any, inner: Any, state: Any, memory: Any, options: Options) -> tuple[Any, Any]:
    gates = {gate: ops.add(own[gate], inner[gate](state)) for gate in own}
    names = ("input", "output", "forget")
    seen = {} if options.peepholes is None else dict(zip(names, options.peepholes, strict=True))

    def opened(gate: str, memory: Any) -> Any:
        """Return how far a gate is open, which may read the memory."""
        total = ops.add(gates[gate], ops.multiply(memory, seen[gate])) if gate in seen else gates[gate]
        return ops.sigmoid(total)

    kept = ops.multiply(opened("forget", memory), memory)
    memory = ops.add(kept, ops.multiply(opened("input", memory), ops.tanh(gates["candidate"])))
    return ops.multiply(opened("output", memory), ops.tanh(memory)), memory


def _gru(own: Any, inner: Any, state: Any, memory: Any, options: Options) -> tuple[Any, Any]:
    update, reset = (ops.sigmoid(ops.add(own[gate], inner[gate](state))) for gate in ("update", "reset"))
    if _reset_after(options.attributes):
        recalled = ops.multiply(reset, inner["candidate"](state))
    else:
        recalled = inner["candidate"](ops.multiply(reset, state))
    candidate = ops.tanh(ops.add(own["candidate"], recalled))
    kept = ops.multiply(update, state)
    return ops.add(kept, ops.multiply(ops.subtract(1.0, update), candidate)), memory


def _rnn(own: Any, inner: Any, state: Any, memory: Any, options: Options) -> tuple[Any, Any]:
    total = ops.add(own["state"], inner["state"](state))
    return (ops.relu if _simple(options.attributes) == "relu" else ops.tanh)(total), memory


CELLS: Final[Mapping[str, Cell]] = {
    "GRU": Cell(layers.GRU, ("update", "reset", "candidate"), (0, 1, 2), ("sigmoid", "tanh"), _gru),
    "LSTM": Cell(
        layers.LSTM,
        ("input", "output", "forget", "candidate"),
        (0, 2, 3, 1),
        ("sigmoid", "tanh", "tanh"),
        _lstm,
    ),
    "RNN": Cell(layers.SimpleRNN, ("state",), (0,), ("tanh",), _rnn),
}
