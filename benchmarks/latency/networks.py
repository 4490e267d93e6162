"""Networks of three families at many widths, none of which is part of a device profile."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import keras
import numpy as np

layers = keras.layers

#: The widths of a network's layers in order, as shares of the largest.
Widths: TypeAlias = Callable[[int], int]


class Sample(NamedTuple):
    """A network of a family."""

    family: str
    model: keras.Model


def samples(count: int, seed: int = 0) -> Iterator[Sample]:
    """Yield networks of each family, scaled by a common factor with small variations per layer."""
    for family, make in FAMILIES.items():
        random = np.random.default_rng(seed)
        for share in np.geomspace(0.25, 1.25, count):
            yield Sample(family, make(_widths(float(share), random)))


def _widths(share: float, random: np.random.Generator) -> Widths:
    return lambda full: max(1, round(full * share * random.uniform(0.7, 1.3)))


def resnet8(width: Widths) -> keras.Model:
    """Return MLPerf Tiny's ResNet-8, on images of 32 x 32."""
    inputs = keras.Input((32, 32, 3), name="image")
    channels = width(16)
    x = _convolved(inputs, channels)
    for stage, stride in ((16, 1), (32, 2), (64, 2)):
        inner, outer = width(stage), channels if stride == 1 else width(stage)
        y = _convolved(_convolved(x, inner, stride=stride), outer, activation=False)
        if stride > 1:
            x = layers.Conv2D(outer, 1, stride)(x)
        channels = outer
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return keras.Model(inputs, layers.Dense(10, "softmax", name="scores")(x))


def mobilenet(width: Widths) -> keras.Model:
    """Return alternating depthwise and pointwise convolutions on 96 x 96, at a quarter of the usual width."""
    inputs = keras.Input((96, 96, 3), name="image")
    x = _convolved(inputs, width(8), stride=2)
    for channels, stride in (
        *((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)),
        *((128, 1), (128, 1), (128, 1), (256, 2), (256, 1)),
    ):
        x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = _convolved(x, width(channels), kernel=1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(2, "softmax", name="scores")(x))


def convolution_over_time(width: Widths) -> keras.Model:
    """Return a keyword network: convolutions over 98 steps of 40 features, then dense layers."""
    inputs = keras.Input((98, 40), name="sound")
    x: Any = inputs
    for channels, kernel, stride in ((64, 5, 1), (64, 5, 2), (96, 3, 1), (96, 3, 2)):
        x = layers.Conv1D(width(channels), kernel, stride, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Flatten()(layers.MaxPooling1D(2)(x))
    x = layers.Dense(width(128), "relu")(layers.Dense(width(256), "relu")(x))
    return keras.Model(inputs, layers.Dense(12, "softmax", name="scores")(x))


FAMILIES: Final[dict[str, Callable[[Widths], keras.Model]]] = {
    "ResNet-8": resnet8,
    "MobileNet": mobilenet,
    "convolution over time": convolution_over_time,
}


def _convolved(x: Any, channels: int, kernel: int = 3, stride: int = 1, activation: bool = True) -> Any:
    x = layers.Conv2D(channels, kernel, stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if activation else x
