"""Layers that were fine-tuned by LoRA (Hu et al., 2022), with the kernel that they compute with.

A Keras file has this kernel alone: the learned change is added to it when the model is saved, and the
low-rank factors are zeros when it is loaded. Each such layer is equivalent to one without LoRA.
"""

from collections.abc import Mapping
from typing import Any, Final

import keras

from executors.structure import keras_internals

_SETTINGS: Final = ("lora_rank", "lora_alpha")
_FACTORS: Final = ("lora_kernel_a", "lora_kernel_b", "lora_embeddings_a", "lora_embeddings_b")


def without_lora(model: keras.Model) -> keras.Model:
    """Return a model whose layers have plain kernels and compute the same; itself where they have already."""
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
    """Return a layer's configuration, layers inside it included, without the settings of LoRA."""
    if isinstance(config, Mapping):
        return {key: _without_settings(value) for key, value in config.items() if key not in _SETTINGS}
    return [_without_settings(value) for value in config] if isinstance(config, list) else config
