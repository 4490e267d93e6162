"""The small network that whole systems are tested with."""

import keras


def two_convolutions() -> keras.Model:
    """One that tells the built-in digits apart, with random weights."""
    layers = keras.layers
    image = keras.Input((8, 8, 1))
    many = layers.Conv2D(32, 3, activation="relu", padding="same")(image)
    many = layers.Conv2D(32, 3, activation="relu")(many)
    return keras.Model(image, layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(many)))
