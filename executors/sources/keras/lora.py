"""Layers fine-tuned with LoRA (Hu et al., 2022), converted to plain layers with the effective kernel.

A Keras file only contains the effective kernel: saving merges the learned update into it, and loading sets
the low-rank factors to zero. Each such layer is equivalent to one without LoRA.
"""

from collections.abc import Mapping
from typing import Any, Final

import keras

from executors.structure import keras_internals

_SETTINGS: Final = ("lora_rank", "lora_alpha")
_FACTORS: Final = ("lora_kernel_a", "lora_kernel_b", "lora_embeddings_a", "lora_embeddings_b")


def without_lora(model: keras.Model) -> keras.Model:
    """Return an equivalent model with plain kernels; the model itself if it has no LoRA layers."""
    tuned = [layer for layer in keras_internals.all_layers(model) if getattr(layer, "lora_enabled", False)]
    if not tuned:
        return model
    plain = keras.models.clone_model(model, clone_function=_plain, recursive=True)
    factors = {id(getattr(layer, name)) for layer in tuned for name in _FACTORS if hasattr(layer, name)}
    kept = [variable for variable in model.variables if id(variable) not in factors]
    for variable, copy in zip(kept, plain.variables, strict=True):
        copy.assign(variable.value)
    layers = zip(keras_internals.all_layers(model), keras_internals.all_layers(plain), strict=True)
    for layer, copy in layers:
        if getattr(layer, "lora_enabled", False):
            name = "embeddings" if isinstance(layer, keras.layers.Embedding) else "kernel"
            getattr(copy, name).assign(getattr(layer, name))
    return plain


def _plain(layer: keras.layers.Layer) -> keras.layers.Layer:
    return type(layer).from_config(_without_settings(layer.get_config()))


def _without_settings(config: Any) -> Any:
    """Return a layer's configuration, including nested layers, without the LoRA settings."""
    if isinstance(config, Mapping):
        return {key: _without_settings(value) for key, value in config.items() if key not in _SETTINGS}
    return [_without_settings(value) for value in config] if isinstance(config, list) else config
