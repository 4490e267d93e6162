"""From tf_keras to Keras 3: every layer rebuilt, called where the old one was, and given its weights."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from executors.constructors import settings_of
from executors.inspection.errors import invalid
from executors.sources.errors import unreadable
from executors.structure import keras_internals, set_weights
from executors.structure.equivalence import TOLERANCE, difference

#: Settings that Keras 3 calls by another name.
_RENAMED = {"LeakyReLU": {"alpha": "negative_slope"}}


def translated(path: Path, old: Any) -> keras.Model:
    """Return a functional or sequential model of tf_keras as one of Keras 3, which computes the same.

    Raises:
        MistifyError: INVALID_MODEL, it cannot be rebuilt, or computes something else.
    """
    try:
        model = _rebuilt(old)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise unreadable(path, error) from error
    _compare(path, old, model)
    return model


def _rebuilt(old: Any) -> keras.Model:
    """Return the graph of a model, followed from its inputs on."""
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
    """Return a layer, not yet built, or a nested model."""
    if keras_internals.is_keras2_model(old):
        return _rebuilt(old)
    config = {"class_name": type(old).__name__, "config": old.get_config()}
    return keras.layers.deserialize(json.loads(json.dumps(config, default=_as_list), object_hook=_as_keras3))


def _as_list(value: Any) -> Any:
    """Return a shape or an array of a layer's config."""
    return np.asarray(value).tolist()


def _as_keras3(config: dict[str, Any]) -> dict[str, Any]:
    """Return a layer's config as Keras 3 takes it, without options it no longer has: `_compare` decides."""
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
    # Without the shapes that it was built for, which Keras 3 writes in another way.
    return {"module": "keras.layers", "class_name": name, "config": settings, "registered_name": None}


def _copy_weights(old: Any, new: keras.layers.Layer) -> None:
    if isinstance(new, keras.Model):
        return  # with weights from the beginning
    set_weights(new, old.get_weights())


def _compare(path: Path, old: Any, model: keras.Model) -> None:
    """Refuse a translation that computes something else."""
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
            path, f"outputs that differ by {apart:.2g} of their size once translated to Keras 3",
            "equal outputs", "save the model with Keras 3",
        )  # fmt: skip


def _outputs(model: Any, inputs: list[npt.NDArray[Any]]) -> list[Any]:
    outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    return list(keras.tree.flatten(outputs))
