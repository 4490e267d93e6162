"""Models and composite layers that are applied to each step of a sequence, as layers that are."""

from types import SimpleNamespace
from typing import Any

import keras

from executors.structure import keras_internals
from executors.structure.each_step import EachStep, step_shape
from executors.structure.errors import UnsupportedLayerError
from executors.structure.reading.composites import expanded
from executors.structure.reading.operations import as_layer_call


def stepwise(name: str, layer: Any, tensor: keras.KerasTensor, is_functional: bool) -> keras.Model:
    """Return a model that applies each of the layers within a model to each step of a sequence.

    The layers and their weights are shared.

    Args:
        name: The layer's name in errors.
        layer: A model or a composite layer with one input.
        tensor: The sequence [n, steps, ...].
        is_functional: Whether the calls of the layer are known.

    Raises:
        UnsupportedLayerError: The layer has several inputs, outputs or arguments of a call, or masks.
    """
    if not is_functional:
        step = keras.Input(batch_shape=step_shape(tensor.shape), dtype=tensor.dtype)
        layer = expanded(name, layer, SimpleNamespace(args=(step,), kwargs={}, keras_tensors=[step]))
    if len(layer.inputs) != 1 or len(layer.outputs) != 1:
        raise _refusal(
            name, f"has {len(layer.inputs)} inputs and {len(layer.outputs)} outputs", "one of each"
        )
    inputs = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype)
    (output,) = applied_to_steps(name, layer, inputs)
    return keras.Model(inputs, output, name=layer.name)


def applied_to_steps(name: str, model: keras.Model, sequence: keras.KerasTensor) -> list[keras.KerasTensor]:
    """Return the outputs of a functional model for each step of a sequence; its layers are shared.

    Args:
        name: The model's name in errors.
        model: A model with one input.
        sequence: A tensor [n, steps, ...].

    Raises:
        UnsupportedLayerError: A call within the model has several arguments, or masks.
    """
    made = {id(model.inputs[0]): sequence}
    for call in keras_internals.calls(model):
        if not call.is_input:
            outputs = _called(name, call, made)
            made.update(zip(map(id, call.output_tensors), outputs, strict=True))
    return [made[id(output)] for output in model.outputs]


def _called(name: str, call: Any, made: dict[int, keras.KerasTensor]) -> list[keras.KerasTensor]:
    """Return the results of a call for all steps.

    Args:
        name: The name of the model in errors.
        call: A call within the model, as stored by Keras.
        made: The tensors for all steps, by the identity of those for one step.
    """
    inner = call.operation.name
    operation, args, kwargs = as_layer_call(call.operation, call.arguments.args, call.arguments.kwargs)
    named = {key: value for key, value in kwargs.items() if value is not None and key != "training"}
    if any(keras_internals.mask_of(tensor) is not None for tensor in call.output_tensors) or "mask" in named:
        raise _refusal(name, f"has masks, in {inner!r}", "no Masking, and Embedding(mask_zero=False)")
    tensors = keras.tree.flatten(args)
    if named or len(args) != 1 or not all(isinstance(tensor, keras.KerasTensor) for tensor in tensors):
        raise _refusal(
            name,
            f"calls {inner!r} with several arguments",
            "layers with one argument, such as keras.layers.Multiply()([x, y]) instead of x * y",
        )
    outputs = EachStep(operation, name=inner)(
        keras.tree.map_structure(lambda tensor: made[id(tensor)], args[0])
    )
    return list(keras.tree.flatten(outputs))


def _refusal(name: str, reason: str, expected: str) -> UnsupportedLayerError:
    return UnsupportedLayerError(
        f"layer {name!r} applies a model to each step, which {reason}; expected {expected}"
    )
