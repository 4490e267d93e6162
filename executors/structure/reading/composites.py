"""Expansion of composite layers and subclassed models, by running their `call` on symbolic tensors."""

import inspect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import keras

from executors.structure import keras_internals
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Shape


def expanded(name: str, layer: keras.layers.Layer, arguments: Any) -> keras.Model:
    """Return one call of a layer as a functional model of the layers and operations in that call.

    The layers and their weights are shared.

    Args:
        name: The layer's name in errors.
        layer: A built layer.
        arguments: Arguments of the call, as stored by Keras; its tensors become the inputs of the model, in
            order.

    Raises:
        UnsupportedLayerError: The layer has weights of its own, reads those of other layers, behaves
            differently in training, takes an implicit mask, or cannot be called on symbolic tensors.
    """
    own = keras_internals.own_variables(layer)
    if own:
        raise _opaque(name, layer, f"has weights of its own ({', '.join(v.name for v in own)})")
    inputs = {id(tensor): _input_like(tensor) for tensor in arguments.keras_tensors}
    if "training" in inspect.signature(layer.call).parameters and not keras_internals.has_sublayers(layer):
        raise _opaque(name, layer, "behaves differently in training")
    if any(keras_internals.mask_of(tensor) is not None for tensor in arguments.keras_tensors):
        raise _opaque(name, layer, "takes the mask of an Embedding(mask_zero=True) or a Masking layer")

    def replaced(value: Any) -> Any:
        return inputs[id(value)] if isinstance(value, keras.KerasTensor) else value

    args = keras.tree.map_structure(replaced, arguments.args)
    kwargs = {
        key: keras.tree.map_structure(replaced, value)
        for key, value in arguments.kwargs.items()
        if value is not None and key != "training"
    }
    return _called(name, layer, list(inputs.values()), args, kwargs)


def parted(operation: Any, arguments: Any) -> keras.Model | None:
    """Return a call that divides a tensor as a functional model that selects each of the parts.

    Args:
        operation: An operation or a layer.
        arguments: Arguments of the call, as stored by Keras.

    Returns:
        None for other calls, and for a division of the batch.
    """
    if type(operation) not in (keras_internals.numpy.Split, keras_internals.core.Unstack):
        return None
    (tensor,) = arguments.keras_tensors
    axis, parts = operation.axis % tensor.ndim, operation.compute_output_spec(tensor)
    if axis == 0:
        return None
    if type(operation) is keras_internals.core.Unstack:
        keys: list[int | slice] = list(range(len(parts)))
    else:
        ends = accumulate(part.shape[axis] for part in parts)
        keys = [slice(end - part.shape[axis], end) for part, end in zip(parts, ends, strict=True)]
    inputs = _input_like(tensor)
    outputs = [inputs[(*[slice(None)] * axis, key)] for key in keys]
    return keras.Model(inputs, outputs, name=operation.name)


def subclassed(model: keras.Model) -> keras.Model:
    """Return a subclassed model with one input as a functional model of the layers in its call.

    Raises:
        UnsupportedLayerError: The call cannot be expanded (see `expanded`), or the model was not built on a
            single input.
    """
    tensors = getattr(model, "inputs", None)
    shapes = [tensor.shape for tensor in tensors or ()] or _built_shapes(model)
    if len(shapes) != 1:
        raise _opaque(model.name, model, "was never built on one input")
    name = next(iter(inspect.signature(model.call).parameters))  # the input's name for users
    inputs = keras.Input(batch_shape=(None, *shapes[0][1:]), name=name)
    return _called(model.name, model, [inputs], (inputs,), {})


def masked(model: keras.Model, masks: Sequence[keras.KerasTensor | None]) -> keras.Model:
    """Return a functional model for tensors with masks; the masks are additional inputs.

    Masks are passed with the tensors into a nested model, which was built on tensors without masks.
    """
    inputs = [_input_like(tensor) for tensor in model.inputs]
    mask_inputs = [None if mask is None else _input_like(mask) for mask in masks]
    for tensor, mask in zip(inputs, mask_inputs, strict=False):  # as in Keras, a dictionary may have more
        keras_internals.set_mask(tensor, mask)
    outputs = keras_internals.called_again(model, inputs)
    return keras.Model(
        [*inputs, *(mask for mask in mask_inputs if mask is not None)], outputs, name=model.name
    )


def _built_shapes(model: keras.Model) -> list[Shape]:
    return [
        shape
        for shape in keras_internals.built_shapes(model)
        if shape and all(isinstance(size, int | None) for size in shape)
    ]


def _called(
    name: str, layer: keras.layers.Layer, inputs: list[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> keras.Model:
    try:
        with _Reads() as reads:
            outputs = layer.call(*args, **kwargs)
        model = keras.Model(inputs, keras.tree.flatten(outputs), name=layer.name)
    except Exception as error:
        # User code may raise anything.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _opaque(name, layer, f"cannot be called on symbolic tensors ({reason[:200]})") from error
    if reads.paths:
        raise _opaque(name, layer, f"reads weights or states itself ({', '.join(sorted(reads.paths))})")
    return model


class _Reads(keras.StatelessScope):  # type: ignore[misc]  # Keras has no types
    """Records the variables that are read outside nested layers: their values would become constants.

    Nested layers called on symbolic tensors read their variables in a scope of their own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paths: set[str] = set()

    def get_current_value(self, variable: keras.Variable) -> Any:
        """Record a variable that is read."""
        self.paths.add(variable.path)
        return super().get_current_value(variable)


def _input_like(tensor: keras.KerasTensor) -> keras.KerasTensor:
    return keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype)


def _opaque(name: str, layer: keras.layers.Layer, reason: str) -> UnsupportedLayerError:
    kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
    return UnsupportedLayerError(
        f"layer {name!r} is a {kind}, which has no handler, and which {reason}; register a handler with "
        f"@executors.structure.handlers.register({type(layer).__qualname__}) on a LayerHandler"
    )
