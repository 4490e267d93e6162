"""Conversion of operations such as `x + y` or `keras.ops.relu(x)`, and of wrappers, to equivalent layers."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import keras

from executors.structure import keras_internals

layers = keras.layers
Call = tuple[Any, tuple[Any, ...], Mapping[str, Any]]

_MERGES = {
    "Add": layers.Add,
    "Maximum": layers.Maximum,
    "Minimum": layers.Minimum,
    "Multiply": layers.Multiply,
    "Subtract": layers.Subtract,
}
_ACTIVATIONS = {
    "HardSigmoid": "hard_sigmoid",
    "HardSilu": "hard_silu",
    "Relu": "relu",
    "Relu6": "relu6",
    "Sigmoid": "sigmoid",
    "Silu": "silu",
    "Softplus": "softplus",
    "Tanh": "tanh",
}
#: Operation with a constant on its right -> scale and offset.
_CONSTANT_ON_RIGHT: Mapping[str, Callable[[float], tuple[float, float]]] = {
    "Add": lambda value: (1.0, value),
    "Divide": lambda value: (1.0 / value, 0.0),
    "Multiply": lambda value: (value, 0.0),
    "Subtract": lambda value: (1.0, -value),
    "TrueDivide": lambda value: (1.0 / value, 0.0),
}
#: The same for a constant on the left.
_CONSTANT_ON_LEFT: Mapping[str, Callable[[float], tuple[float, float]]] = {
    "Add": _CONSTANT_ON_RIGHT["Add"],
    "Multiply": _CONSTANT_ON_RIGHT["Multiply"],
    "Subtract": lambda value: (-1.0, value),
}
#: Layers whose result does not depend on the axes before the last.
_LAST_AXIS_LAYERS = (
    *(layers.Dense, layers.Activation, layers.Dropout, layers.Rescaling),
    *(layers.ReLU, layers.LeakyReLU, layers.ELU),
)


def as_layer_call(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Return an equivalent layer call for the call of an operation; other calls are returned unchanged.

    Operations have neither handlers nor layer options. Operations without an equivalent layer, and layers
    applied per step that cannot take a whole sequence, are left for the handlers to refuse.

    Args:
        operation: An operation or a layer.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.
    """
    if isinstance(operation, layers.TimeDistributed) and isinstance(operation.layer, _LAST_AXIS_LAYERS):
        return operation.layer, args[:1], {}
    if not keras_internals.is_operation(operation) or kwargs:
        return operation, args, kwargs
    # Layers pass the mask of a padded text on; operations drop it.
    if any(keras_internals.mask_of(tensor) is not None for tensor in keras.tree.flatten(args)):
        return operation, args, kwargs
    layer = _layer_of(operation, args)
    if layer is None:
        return operation, args, kwargs
    tensors = [arg for arg in args if not isinstance(arg, Real)]
    return layer, (tensors,) if isinstance(layer, tuple(_MERGES.values())) else tuple(tensors), {}


def _layer_of(operation: Any, args: tuple[Any, ...]) -> keras.layers.Layer | None:
    kind, name = type(operation).__name__, operation.name
    if kind in _ACTIVATIONS and len(args) == 1:
        return layers.Activation(_ACTIVATIONS[kind], name=name)
    if kind == "Concatenate":
        return layers.Concatenate(axis=operation.axis, name=name)
    if len(args) != 2:
        return None
    left, right = args
    for value, rules in ((right, _CONSTANT_ON_RIGHT), (left, _CONSTANT_ON_LEFT)):
        if isinstance(value, Real) and kind in rules:
            scale, offset = rules[kind](float(value))
            return layers.Rescaling(scale, offset, name=name)
    # Operations and layers align tensors of different rank in different ways.
    if kind in _MERGES and all(map(keras.backend.is_keras_tensor, args)) and left.ndim == right.ndim:
        return _MERGES[kind](name=name)
    return None
