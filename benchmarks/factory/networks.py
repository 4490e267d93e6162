"""The networks that answer questions about four digits, for images of 16 x 16."""

from typing import Any, Final

import keras

layers = keras.layers

#: Units inside, channels behind, and stride of each residual block.
_BLOCKS: Final = ((32, 24, 2), (64, 48, 2), (96, 64, 1))

#: Channels of the first convolution, width, hidden units, heads and number of blocks of the transformer.
_STEM, _WIDTH, _HIDDEN, _HEADS, _LAYERS = 32, 64, 256, 4, 3


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


def quad_vit() -> keras.Model:
    """Return a vision transformer with random weights: two convolutions make 16 tokens for three blocks."""
    keras.utils.set_random_seed(0)
    image = keras.Input((16, 16, 1), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1)(image)
    x = layers.ReLU()(_normed(layers.Conv2D(_STEM, 3, 2, padding="same", use_bias=False)(x)))
    x = layers.Conv2D(_WIDTH, 3, 2, padding="same")(x)
    # A convolution with zeros around the image tells tokens their places.
    x = layers.Add()([x, layers.DepthwiseConv2D(3, padding="same")(x)])
    x = layers.Reshape((-1, _WIDTH))(x)
    for _ in range(_LAYERS):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS)(y, y)])
        y = layers.Dense(_HIDDEN, "gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(_WIDTH)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(image, layers.Dense(1, "sigmoid", name="answer")(x), name="quad-vit")


def _normed(x: Any) -> Any:
    return layers.BatchNormalization(momentum=0.95)(x)
