"""Translation from tf_keras to Keras 3: layers are rebuilt, connected as before, and given their weights."""

import json
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt

from executors.constructors import settings_of
from executors.inspection.errors import invalid
from executors.sources.errors import unreadable
from executors.structure import keras_internals, set_weights
from executors.structure.equivalence import TOLERANCE, difference

#: Settings with another name in Keras 3.
_RENAMED = {"LeakyReLU": {"alpha": "negative_slope"}}

#: Slope of Keras 2's hard sigmoid, 1/5, divided by that of Keras 3, 1/6
#: (`findings/keras2_hard_sigmoid_changes.sh`).
_STEEPER: Final = 1.2

#: Recurrent cell -> which activation follows each part of its kernels.
_ACTIVATIONS: Final = {
    "LSTMCell": ("recurrent_activation", "recurrent_activation", "activation", "recurrent_activation"),
    "ConvLSTMCell": ("recurrent_activation", "recurrent_activation", "activation", "recurrent_activation"),
    "GRUCell": ("recurrent_activation", "recurrent_activation", "activation"),
}


def translated(path: Path, old: Any) -> keras.Model:
    """Translate a functional or sequential tf_keras model to an equivalent Keras 3 model.

    Raises:
        MistifyError: INVALID_MODEL if it cannot be rebuilt, or computes different outputs.
    """
    try:
        model = _rebuilt(old)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise unreadable(path, error) from error
    _compare(path, old, model)
    return model


def _rebuilt(old: Any) -> keras.Model:
    """Rebuild the graph of a model, starting from its inputs."""
    made: dict[int, Any] = {
        id(tensor): keras.Input(tensor.shape[1:], name=layer.name, dtype=tensor.dtype.name)
        for tensor, layer in zip(old.inputs, keras_internals.keras2_input_layers(old), strict=True)
    }
    layers: dict[int, keras.layers.Layer] = {}

    def new(value: Any) -> Any:
        return made.get(id(value), value)

    for call in keras_internals.keras2_calls(old):
        layer = layers.setdefault(id(call.layer), _layer(call.layer))
        arguments = keras.tree.map_structure(new, list(call.call_args))
        options = keras.tree.map_structure(new, call.call_kwargs)
        if isinstance(layer, keras.layers.Activation) and layer.activation is keras.activations.hard_sigmoid:
            arguments = [keras.layers.Rescaling(_STEEPER)(*arguments)]
        outputs = layer(*arguments, **{key: value for key, value in options.items() if value is not None})
        pairs = zip(keras.tree.flatten(call.outputs), keras.tree.flatten(outputs), strict=True)
        made.update((id(before), after) for before, after in pairs)
    for old_layer in old.layers:
        if id(old_layer) in layers:
            _copy_weights(old_layer, layers[id(old_layer)])
    return keras.Model(
        [new(tensor) for tensor in old.inputs], [new(tensor) for tensor in old.outputs], name=old.name
    )


def _layer(old: Any) -> keras.layers.Layer:
    """Return the equivalent of a layer, not yet built, or of a nested model."""
    if keras_internals.is_keras2_model(old):
        return _rebuilt(old)
    config = {"class_name": type(old).__name__, "config": old.get_config()}
    return keras.layers.deserialize(json.loads(json.dumps(config, default=_as_list), object_hook=_as_keras3))


def _as_list(value: Any) -> Any:
    """Convert a shape or an array in a layer's config to a list."""
    return np.asarray(value).tolist()


def _as_keras3(config: dict[str, Any]) -> dict[str, Any]:
    """Return a layer's config for Keras 3, without discontinued options; `_compare` checks the effect."""
    name, settings = config.get("class_name"), config.get("config")
    layer = getattr(keras.layers, name, None) if isinstance(name, str) else None
    if not isinstance(settings, dict) or not isinstance(layer, type):
        return config
    renamed = _RENAMED.get(str(name), {})
    settings = {renamed.get(key, key): value for key, value in settings.items()}
    known = settings_of(layer)
    settings = {key: value for key, value in settings.items() if key in known}
    if name == "BatchNormalization" and isinstance(settings.get("axis"), list):
        (settings["axis"],) = settings["axis"]
    # Drop the shapes that the layer was built for, which Keras 3 stores differently.
    return {"module": "keras.layers", "class_name": name, "config": settings, "registered_name": None}


def _copy_weights(old: Any, new: keras.layers.Layer) -> None:
    if isinstance(new, keras.Model):
        return  # already has its weights
    set_weights(new, old.get_weights())
    for layer in (new, *keras_internals.all_layers(new)):
        _keep_slope(layer)


def _keep_slope(layer: keras.layers.Layer) -> None:
    """Scale the weights in front of a hard sigmoid, whose slope is smaller in Keras 3."""
    if hasattr(layer, "cell"):
        return  # its weights and activations are those of the cell
    activations = _ACTIVATIONS.get(type(layer).__name__, ("activation",))
    hard = [getattr(layer, name, None) is keras.activations.hard_sigmoid for name in activations]
    if not any(hard):
        return
    for variable in layer.weights:
        if variable.name != "depthwise_kernel":  # of a separable convolution, in front of another kernel
            scales = np.where(hard, _STEEPER, 1.0).repeat(variable.shape[-1] // len(hard))
            variable.assign(variable.numpy() * scales)


def _compare(path: Path, old: Any, model: keras.Model) -> None:
    """Refuse a translation with different outputs."""
    rng = np.random.default_rng(0)
    indices = any(isinstance(layer, keras.layers.Embedding) for layer in model.layers)
    inputs = []
    for tensor in model.inputs:
        shape = [4, *(size or 32 for size in tensor.shape[1:])]
        inputs.append(
            rng.integers(0, 2, shape).astype(np.float32)
            if indices
            else rng.uniform(size=shape).astype(np.float32)
        )
    apart = difference(_outputs(old, inputs), _outputs(model, inputs))
    if not apart <= TOLERANCE:
        raise invalid(
            path, f"outputs that differ by {apart:.2g} of their magnitude after translation to Keras 3",
            "equal outputs", "save the model with Keras 3",
        )  # fmt: skip


def _outputs(model: Any, inputs: list[npt.NDArray[Any]]) -> list[Any]:
    outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    return list(keras.tree.flatten(outputs))
