"""Corruptions of images: four kinds, each in three severities, as lenses, sensors and light cause them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

Images = npt.NDArray[np.float32]

#: Takes images [n, height, width, channels] and a generator; returns corrupted ones in the same range.
Corruption = Callable[[Images, np.random.Generator], Images]


def _noise(images: Images, rng: np.random.Generator, *, sigma: float, largest: float) -> Images:
    noisy = images + rng.normal(size=images.shape) * sigma * largest
    return np.clip(noisy, 0, largest).astype(np.float32)


def _blur(images: Images, rng: np.random.Generator, *, sigma: float, largest: float) -> Images:
    return np.stack([gaussian_filter(image, (sigma, sigma, 0)) for image in images])


def _contrast(images: Images, rng: np.random.Generator, *, share: float, largest: float) -> Images:
    mean = images.mean((1, 2, 3), keepdims=True)
    return np.asarray((images - mean) * np.float32(share) + mean, np.float32)


def _brightness(images: Images, rng: np.random.Generator, *, more: float, largest: float) -> Images:
    return np.asarray(np.clip(images + np.float32(more * largest), 0, largest), np.float32)


#: Kind -> its function, and its setting by severity. Values are shares of the largest pixel.
_KINDS: Final[Mapping[str, tuple[Callable[..., Images], str, tuple[float, ...]]]] = {
    "noise": (_noise, "sigma", (12 / 255, 24 / 255, 40 / 255)),
    "blur": (_blur, "sigma", (0.7, 1.0, 1.4)),
    "contrast": (_contrast, "share", (0.5, 0.3, 0.15)),
    "brightness": (_brightness, "more", (40 / 255, 70 / 255, 100 / 255)),
}


def corruptions(largest: float) -> Mapping[str, Corruption]:
    """Return the twelve corruptions by name, such as "noise 2".

    Args:
        largest: The largest value of a pixel; the smallest is 0.
    """
    return {
        f"{kind} {severity}": partial(function, **{setting: value, "largest": largest})
        for kind, (function, setting, values) in _KINDS.items()
        for severity, value in enumerate(values, 1)
    }
