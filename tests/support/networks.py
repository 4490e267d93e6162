"""The small network used by the end-to-end tests."""

import keras


def two_convolutions() -> keras.Model:
    """Return a classifier of the built-in digits, with random weights."""
    layers = keras.layers
    image = keras.Input((8, 8, 1))
    many = layers.Conv2D(32, 3, activation="relu", padding="same")(image)
    many = layers.Conv2D(32, 3, activation="relu")(many)
    return keras.Model(image, layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(many)))
