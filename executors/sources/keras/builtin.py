"""Models included with Mistify, and the code that trained their weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from executors.readers.loading import load_dataset
from executors.structure.signature import signature_of
from executors.training.evaluation import recalibrate
from mistify.errors import ErrorCode, MistifyError


def builtin_source(name: str) -> keras.Model:
    """Return a model included with Mistify, with its weights.

    Raises:
        MistifyError: NOT_FOUND, with the available names.
    """
    if name not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise MistifyError(
            ErrorCode.NOT_FOUND, f"built-in model {name!r} is unknown; expected one of {known}"
        )
    model = _ARCHITECTURES[name]()
    model.load_weights(weights_file(name))
    return model


def weights_file(name: str) -> Path:
    """Return the path of the weights of the built-in model `name`."""
    return Path(__file__).with_name(f"{name}.weights.h5")


def train_digits_resnet() -> keras.Model:
    """Train the weights of `digits-resnet` again, from scratch; this takes some seconds."""
    keras.utils.set_random_seed(0)
    model = _digits_resnet()
    data = load_dataset("builtin:digits-train", signature_of(model))
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy")
    model.fit(data.inputs["image"], data.targets["digit"], batch_size=64, epochs=12, verbose=0)
    recalibrate(model, data)
    return model


def _digits_resnet() -> keras.Model:
    """Return a small residual network for 8 x 8 digits."""
    layers = keras.layers

    def block(x: Any, width: int, strides: int) -> Any:
        y = layers.Conv2D(width, 3, strides, "same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same", use_bias=False)(y))
        shortcut = layers.Conv2D(width, 1, strides)(x)
        return layers.ReLU()(layers.Add()([y, shortcut]))

    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    for width, strides in ((16, 1), (32, 2), (64, 2)):
        x = block(x, width, strides)
    outputs = layers.Dense(10, "softmax", name="digit")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs, name="digits_resnet")


_ARCHITECTURES: dict[str, Callable[[], keras.Model]] = {"digits-resnet": _digits_resnet}
