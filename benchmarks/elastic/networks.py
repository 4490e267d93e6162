"""The networks for AdaptiveNet's benchmarks: MobileNet with 13 pairs of layers, and ResNet-20."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import keras

layers = keras.layers

#: Channels and strides of MobileNet's pairs of a depthwise and a pointwise convolution, with a width of a
#: quarter, for images of 32 x 32 (Howard et al., 2017).
_PAIRS: Final = (
    (16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1),
)  # fmt: skip


def mobilenet13() -> keras.Model:
    """Return a MobileNet with random weights."""
    inputs, x = _stem(8)
    for width, stride in _PAIRS:
        x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Conv2D(width, 1, use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    return _classifier(inputs, x, "mobilenet13")


def resnet20() -> keras.Model:
    """Return a ResNet-20 with random weights (He et al., 2015)."""
    return _resnet("resnet20", 16, 3)


def resnet14() -> keras.Model:
    """Return a ResNet with two blocks per feature-map size, at half the width."""
    return _resnet("resnet14", 8, 2)


NETWORKS: Final[Mapping[str, Callable[[], keras.Model]]] = {"mobilenet13": mobilenet13, "resnet20": resnet20}


def _stem(width: int) -> tuple[Any, Any]:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((32, 32, 3), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
    return inputs, layers.ReLU()(layers.BatchNormalization()(x))


def _resnet(name: str, narrowest: int, blocks: int) -> keras.Model:
    inputs, x = _stem(narrowest)
    for width in (narrowest, 2 * narrowest, 4 * narrowest):
        for number in range(blocks):
            stride = 2 if width > narrowest and number == 0 else 1
            y = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
            y = layers.ReLU()(layers.BatchNormalization()(y))
            y = layers.Conv2D(width, 3, padding="same", use_bias=False)(y)
            y = layers.BatchNormalization()(y)
            if stride > 1:
                x = layers.BatchNormalization()(layers.Conv2D(width, 1, stride, use_bias=False)(x))
            x = layers.ReLU()(layers.Add()([x, y]))
    return _classifier(inputs, x, name)


def _classifier(inputs: Any, x: Any, name: str) -> keras.Model:
    outputs = layers.Dense(10, "softmax", name="class")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs, name=name)
