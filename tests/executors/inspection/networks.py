"""A valid model, from which malformed ones are derived."""

from pathlib import Path

import keras

layers = keras.layers


def small_network() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.ReLU(name="relu")(layers.Conv2D(6, 3, name="conv")(inputs))
    x = layers.BatchNormalization(name="norm")(x)
    return keras.Model(inputs, layers.Dense(3, "softmax", name="scores")(layers.GlobalAveragePooling2D()(x)))


def save_good_model(directory: Path) -> Path:
    path = directory / "good-model.keras"
    small_network().save(path)
    return path
