"""Calls with several results: states of recurrent layers, and scores of attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from executors.structure.errors import UnsupportedLayerError

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


def several_results(name: str, operation: Any, arguments: Any) -> tuple[keras.Model, list[Any]] | None:
    """Return a call with several results as a functional model of layers with one result.

    The layers have the same weights. The last output of a recurrent layer is also its state; the memory of an
    LSTM is absent, as are the scores of attention.

    Args:
        name: The layer's name in errors.
        operation: An operation or a layer.
        arguments: Arguments of the call, as stored by Keras.

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
    elif isinstance(operation, _CELLS) and operation.return_state:
        results = list(_states(name, operation, args, kwargs))
    elif isinstance(operation, layers.Bidirectional) and operation.return_state:
        results = _both_directions(name, operation, args, kwargs)
    else:
        return None
    there = {id(result): result for result in results if not isinstance(result, Absent)}
    return keras.Model(list(inputs.values()), list(there.values()), name=operation.name), results


def _states(name: str, layer: Any, args: Any, kwargs: Any) -> Sequence[Any]:
    """Return the output of a recurrent layer, and its states."""
    made = _without_states(layer)(*args, **kwargs)
    last = made[:, -1] if layer.return_sequences else made
    memory = Absent(
        last,
        f"layer {name!r} returns its memory, the second of its states, which is used; "
        "expected only its output and its first state; use a GRU, which has one state",
    )
    return [made, last, memory] if isinstance(layer, layers.LSTM) else [made, last]


def _both_directions(name: str, wrapper: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the merged outputs of two recurrent layers, and the states of both."""
    ahead, back = wrapper.forward_layer, wrapper.backward_layer
    if wrapper.merge_mode not in _MERGES or not isinstance(ahead, _CELLS) or not isinstance(back, _CELLS):
        raise UnsupportedLayerError(
            f"layer {name!r} returns states and does not merge two recurrent layers; "
            "expected a GRU, an LSTM or a SimpleRNN with a merge_mode"
        )
    if "initial_state" in kwargs and kwargs["initial_state"] is not None:
        raise UnsupportedLayerError(f"layer {name!r} is given its initial state; expected none")
    first, *of_ahead = _states(name, ahead, args, kwargs)
    second, *of_back = _states(name, back, args, kwargs)
    if wrapper.return_sequences:
        second = keras.ops.flip(second, axis=1)
    merged = _MERGES[wrapper.merge_mode](name=wrapper.name)([first, second])
    return [merged, *of_ahead, *of_back]


def _without_states(layer: Any) -> Any:
    """Return a recurrent layer with the same cell that returns only its output."""
    plain = type(layer).from_config({**layer.get_config(), "return_state": False})
    del plain.cell
    plain.cell, plain.built = layer.cell, True
    return plain
