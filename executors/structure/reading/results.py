"""Calls with several results: states of recurrent layers, and scores of attention."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from executors.structure.errors import UnsupportedLayerError
from executors.structure.lstm_memory import LSTMWithMemory

layers = keras.layers

_CELLS = (layers.GRU, layers.LSTM, layers.SimpleRNN)
_ATTENTION = (layers.MultiHeadAttention, layers.GroupQueryAttention, layers.Attention)

_MERGES = {"concat": layers.Concatenate, "sum": layers.Add, "mul": layers.Multiply, "ave": layers.Average}


@dataclass(frozen=True)
class Absent:
    """A result that no layer of a graph computes.

    Attributes:
        tensor: A tensor of its shape and type.
        reason: Why a model that uses it is refused.
    """

    tensor: keras.KerasTensor
    reason: str


def several_results(
    name: str, operation: Any, arguments: Any, used: Sequence[bool]
) -> tuple[keras.Model, list[Any]] | None:
    """Return a call with several results as a functional model of layers with one result.

    The layers have the same weights. The last output of a recurrent layer is also its state, and an LSTM
    whose memory is used returns it as a further step. The scores of attention are absent. A bidirectional
    layer that is given its initial states also becomes a layer for each direction.

    Args:
        name: The layer's name in errors.
        operation: An operation or a layer.
        arguments: Arguments of the call, as stored by Keras.
        used: Whether each result is used.

    Returns:
        The model, and the results of the call in order: its outputs, or `Absent`. None for other calls.

    Raises:
        UnsupportedLayerError: The layer returns the results of both directions apart.
    """
    inputs = {
        id(tensor): keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype)
        for tensor in arguments.keras_tensors
    }

    def replaced(value: Any) -> Any:
        return inputs[id(value)] if isinstance(value, keras.KerasTensor) else value

    args, kwargs = (
        keras.tree.map_structure(replaced, values) for values in (arguments.args, arguments.kwargs)
    )
    if isinstance(operation, _ATTENTION) and kwargs.get("return_attention_scores"):
        _, scores = operation(*args, **kwargs)
        reason = f"layer {name!r} returns its scores, which are used; expected only its result"
        made = operation(*args, **{**kwargs, "return_attention_scores": False})
        results = [made, Absent(scores, reason)]
    elif type(operation) in _CELLS and operation.return_state:
        results = list(_states(operation, _bound(operation, args, kwargs), any(used[2:])))
    elif isinstance(operation, layers.Bidirectional) and (
        operation.return_state or _bound(operation, args, kwargs).get("initial_state") is not None
    ):
        results = _both_directions(name, operation, _bound(operation, args, kwargs), used)
    else:
        return None
    there = {id(result): result for result in results if not isinstance(result, Absent)}
    return keras.Model(list(inputs.values()), list(there.values()), name=operation.name), results


def _bound(layer: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    return dict(inspect.signature(layer.call).bind(*args, **kwargs).arguments)


def _states(layer: Any, arguments: Mapping[str, Any], memory_used: bool) -> Sequence[Any]:
    """Return the output of a recurrent layer and its states; the memory of an LSTM only if it is used."""
    if memory_used and isinstance(layer, layers.LSTM):
        steps = _like(layer, LSTMWithMemory)(**arguments)
        last = steps[:, -2]
        return [steps[:, :-1] if layer.return_sequences else last, last, steps[:, -1]]
    made = _like(layer, type(layer), return_state=False)(**arguments)
    last = made[:, -1] if layer.return_sequences else made
    return [made, last, last] if isinstance(layer, layers.LSTM) else [made, last]


def _both_directions(
    name: str, wrapper: Any, arguments: Mapping[str, Any], used: Sequence[bool]
) -> list[Any]:
    """Return the merged outputs of two recurrent layers, and the states of both if they are returned."""
    ahead, back = wrapper.forward_layer, wrapper.backward_layer
    if wrapper.merge_mode not in _MERGES or not isinstance(ahead, _CELLS) or not isinstance(back, _CELLS):
        raise UnsupportedLayerError(
            f"layer {name!r} has states and does not merge two recurrent layers; "
            "expected a GRU, an LSTM or a SimpleRNN with a merge_mode"
        )
    states = arguments.get("initial_state")
    half = len(ahead.state_size)
    starts = (None, None) if states is None else (states[:half], states[half:])
    (first, *of_ahead), (second, *of_back) = (
        _states(layer, {**arguments, "initial_state": start}, any(used[place : place + 1]))
        for layer, start, place in ((ahead, starts[0], half), (back, starts[1], 2 * half))
    )
    if wrapper.return_sequences:
        second = keras.ops.flip(second, axis=1)
    merged = _MERGES[wrapper.merge_mode](name=wrapper.name)([first, second])
    return [merged, *of_ahead, *of_back] if wrapper.return_state else [merged]


def _like(layer: Any, kind: Any, **options: Any) -> Any:
    """Return a recurrent layer of a kind with the cell of another one."""
    made = kind.from_config({**layer.get_config(), **options})
    del made.cell
    made.cell, made.built = layer.cell, True
    return made
