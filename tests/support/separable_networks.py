"""Small networks of depthwise, grouped and separable convolutions, drawn by seed, and images to classify."""

from pathlib import Path
from typing import Any

import keras
import numpy as np

layers = keras.layers

#: The number of image classes.
CLASSES = 7


def separable_network(seed: int) -> keras.Model:
    """Return an untrained classifier of small images with a random architecture typical of small devices."""
    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    side, channels = (int(rng.choice(choices)) for choices in ((24, 32, 48), (1, 3)))
    limit = (6.0, None)[rng.integers(2)]
    image = keras.Input((side, side, channels))
    width = 4 * int(rng.integers(2, 7))
    x = layers.Rescaling(1 / 127.5, -1)(image)
    x = _active(layers.Conv2D(width, 3, 2, padding="same", use_bias=False)(x), limit)
    for _ in range(rng.integers(2, 5)):
        block = (_depthwise, _grouped, _separable)[rng.integers(3)]
        stride = int(rng.choice((1, 2)))
        width = 4 * int(rng.integers(width // 4, width // 2 + 1))
        x = block(x, width, stride, limit)
    return keras.Model(image, layers.Dense(CLASSES, "softmax")(layers.GlobalAveragePooling2D()(x)))


def mobilenet_like() -> keras.Model:
    """Return an untrained image classifier like MobileNet, with few blocks."""
    keras.utils.set_random_seed(0)
    image = keras.Input((48, 48, 3))
    x = layers.Conv2D(16, 3, 2, padding="same", use_bias=False)(layers.Rescaling(1 / 127.5, -1)(image))
    x = _active(x, 6.0)
    for width, stride in ((32, 1), (48, 2), (48, 1), (96, 2), (96, 1)):
        x = _depthwise(x, width, stride, 6.0)
    return keras.Model(image, layers.Dense(CLASSES, "softmax")(layers.GlobalAveragePooling2D()(x)))


def small_xception(seed: int, side: int = 48) -> keras.Model:
    """Return a network like Xception for small greyscale images: separable convolutions with shortcuts."""
    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    image = keras.Input((side, side, 1))
    x = image
    for width in (8, 8):
        x = _active(layers.Conv2D(width, 3, use_bias=False)(x), None)
    for width in (16, 32, 64, 128)[: rng.integers(2, 5)]:
        shortcut = layers.BatchNormalization()(layers.Conv2D(width, 1, 2, padding="same", use_bias=False)(x))
        x = _active(layers.SeparableConv2D(width, 3, padding="same", use_bias=False)(x), None)
        x = layers.SeparableConv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.MaxPooling2D(3, 2, padding="same")(layers.BatchNormalization()(x))
        x = layers.Add()([x, shortcut])
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(CLASSES, 3, padding="same")(x))
    return keras.Model(image, layers.Softmax()(x))


def write_images(shape: tuple[int, ...], directory: Path) -> dict[str, str]:
    """Write training and test images of a shape with classes that differ in brightness; return a dataset."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 280), ("test", 140)):
        labels = rng.integers(0, CLASSES, count)
        images = rng.integers(0, 90, (count, *shape)) + 20 * labels[:, None, None, None]
        np.savez(directory / f"{part}.npz", x=images.astype(np.uint8), y=labels)
    return {part: f"{part}.npz" for part in ("train", "test")}


def _active(x: Any, limit: float | None) -> Any:
    return layers.ReLU(limit)(layers.BatchNormalization()(x))


def _depthwise(x: Any, width: int, stride: int, limit: float | None) -> Any:
    x = _active(layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x), limit)
    return _active(layers.Conv2D(width, 1, use_bias=False)(x), limit)


def _grouped(x: Any, width: int, stride: int, limit: float | None) -> Any:
    return _active(layers.Conv2D(width, 3, stride, padding="same", groups=4, use_bias=False)(x), limit)


def _separable(x: Any, width: int, stride: int, limit: float | None) -> Any:
    return _active(layers.SeparableConv2D(width, 3, stride, padding="same", use_bias=False)(x), limit)
