"""Two custom layers: one composed of Keras layers, and one with its own weights."""

from typing import Any

import keras

from executors.structure import LayerHandler, Role, register


@keras.saving.register_keras_serializable("mine")
class Block(keras.layers.Layer):
    """Two convolutions and a shortcut, composed of Keras layers and operations, so it needs no handler."""

    def __init__(self, channels: int, **options: Any) -> None:
        super().__init__(**options)
        self.channels = channels
        self.first = keras.layers.Conv2D(channels, 3, padding="same", activation="relu")
        self.second = keras.layers.Conv2D(channels, 3, padding="same")

    def build(self, shape: tuple[int, ...]) -> None:
        """Build both convolutions."""
        self.first.build(shape)
        self.second.build((*shape[:-1], self.channels))

    def call(self, x: Any) -> Any:
        """Return activations of the same shape, [batch, height, width, channels]."""
        return keras.ops.relu(x + self.second(self.first(x)))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of `__init__`."""
        return {**super().get_config(), "channels": self.channels}


@keras.saving.register_keras_serializable("mine")
class Scale(keras.layers.Layer):
    """One factor for each channel."""

    def build(self, shape: tuple[int, ...]) -> None:
        """Create the factors."""
        self.factor = self.add_weight(name="factor", shape=shape[-1:], initializer="ones")

    def call(self, x: Any) -> Any:
        """Return activations of the same shape, [..., channels]."""
        return x * self.factor


@register(Scale)
class ScaleHandler(LayerHandler):
    """The channels of `Scale`: each has one factor."""

    def couple(self, node: Any, inputs: Any, output: Any, space: Any) -> Any:
        """Pass the channels on with their factors."""
        space.bind(node, node.layer.factor, 0, Role.PASSES, inputs[0])
        return inputs[0]
