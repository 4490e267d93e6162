"""The network that answers questions about four digits: a residual network for images of 16 x 16."""

from typing import Any, Final

import keras

layers = keras.layers

#: Units inside, channels behind, and stride of each residual block.
_BLOCKS: Final = ((32, 24, 2), (64, 48, 2), (96, 64, 1))


def quad_resnet(times: int = 1) -> keras.Model:
    """Return the network with random weights: 163,000 parameters, and 304 units that can have gates.

    Args:
        times: Makes the residual blocks this many times as wide; 8 times as wide, they have 9.7 million
            parameters.
    """
    keras.utils.set_random_seed(0)
    x = image = keras.Input((16, 16, 1), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1)(x)
    x = layers.ReLU()(_normed(layers.Conv2D(16, 3, padding="same", use_bias=False)(x)))
    for *widths, stride in _BLOCKS:
        units, channels = (times * width for width in widths)
        y = layers.ReLU()(_normed(layers.Conv2D(units, 3, stride, padding="same", use_bias=False)(x)))
        y = _normed(layers.Conv2D(channels, 3, padding="same", use_bias=False)(y))
        x = _normed(layers.Conv2D(channels, 1, stride, padding="same", use_bias=False)(x))
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.ReLU()(_normed(layers.Dense(96, use_bias=False)(x)))
    return keras.Model(image, layers.Dense(1, "sigmoid", name="answer")(x), name="quad-resnet")


def _normed(x: Any) -> Any:
    return layers.BatchNormalization(momentum=0.95)(x)
