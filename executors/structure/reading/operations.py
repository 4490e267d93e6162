"""Conversion of operations such as `x + y` or `keras.ops.relu(x)`, and of wrappers, to equivalent layers."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import keras

from executors.structure import keras_internals
from executors.structure.each_step import EachStep, applied, masks_steps
from executors.structure.equations import Equation
from executors.structure.graph import Shape

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
#: Layers whose result does not depend on the axes before the last, or before the axis in their config.
_LAST_AXIS_LAYERS = (
    *(layers.Dense, layers.Activation, layers.Dropout, layers.Rescaling, layers.Embedding),
    *(layers.ReLU, layers.LeakyReLU, layers.ELU, layers.Softmax),
    *(layers.BatchNormalization, layers.LayerNormalization, layers.RMSNormalization),
    *(*_MERGES.values(), layers.Average, layers.Concatenate),
)


def as_layer_call(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Return an equivalent layer call for the call of an operation; other calls are returned unchanged.

    Operations have neither handlers nor layer options. Operations without an equivalent layer are left for
    the handlers to refuse.

    Args:
        operation: An operation or a layer.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.
    """
    if isinstance(operation, layers.TimeDistributed | EachStep):
        layer, mask = _at_each_step(operation), kwargs.get("mask")
        return layer, args[:1], {"mask": mask} if masks_steps(applied(layer), mask) else {}
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


def _at_each_step(wrapper: Any) -> Any:
    """Return the layer that does what a wrapper does; anything else is returned as it is."""
    if not isinstance(wrapper, layers.TimeDistributed | EachStep):
        return wrapper
    layer = _at_each_step(wrapper.layer)
    if isinstance(layer, _LAST_AXIS_LAYERS) and getattr(layer, "axis", -1) in (-1, [-1]):
        return layer
    return EachStep(layer, name=wrapper.name)


def fix_sizes(layer: Any, shape: Shape) -> None:
    """Set the sizes of the output of an `EinsumDense` that its config leaves to the input.

    Sizes that differ between the calls of a shared layer are left free again.

    Args:
        layer: Any layer or operation.
        shape: The shape of its first input, batch dimension first.
    """
    if isinstance(layer, layers.EinsumDense) and "..." not in layer.equation:
        axes = Equation.of(layer)
        known = dict(zip(axes.read, shape, strict=True))
        sizes = [
            (size, known.get(axis, size))
            for axis, size in zip(axes.made[1:], layer.partial_output_shape, strict=True)
        ]
        layer.partial_output_shape = tuple(read if size in (None, read) else None for size, read in sizes)


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
