"""Conversion of images to network inputs in NumPy: resizing, channel order, scaling."""

import numpy as np
import numpy.typing as npt

from mistify.config.data.preparation import ImagePreparation
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import TensorInfo
from mistify_client.runtime.inputs import Array

Floats = npt.NDArray[np.float32]

#: Shares of red, green and blue in a grey value (ITU-R BT.601).
_GREY = np.array([0.2989, 0.5870, 0.1140], np.float32)


def prepared_image(image: Array, preparation: ImagePreparation, info: TensorInfo) -> Array:
    """Return an image as an input with one example.

    Args:
        image: RGB, uint8 [height, width, 3]; for a grey input also [height, width] or [height, width, 1].
        preparation: The preparation of the input, from a manifest.
        info: The input.

    Returns:
        [1, ...] in the shape of the input, float32, or integers if the input takes integers as values.

    Raises:
        MistifyError: INVALID_DATASET, the image is invalid.
    """
    pixels = _channels(_checked(image, preparation, info), preparation)
    height, width = preparation.size or pixels.shape[:2]
    resize = _nearest if preparation.resize == "nearest" else _bilinear
    for axis, size in enumerate((height, width)):
        pixels = resize(pixels, axis, size)
    values = _scaled(np.clip(np.round(pixels), 0, 255), preparation)
    if preparation.layout == "channels_first":
        values = np.moveaxis(values, -1, 0)
    if info.scale is None and np.issubdtype(np.dtype(info.dtype), np.integer):
        limits = np.iinfo(info.dtype)
        return np.clip(np.round(values), limits.min, limits.max).astype(info.dtype)[np.newaxis]
    return np.ascontiguousarray(values[np.newaxis])


def _checked(image: Array, preparation: ImagePreparation, info: TensorInfo) -> Array:
    image = np.asarray(image)
    grey = preparation.colour == "grey"
    if grey and image.ndim == 2:
        image = image[..., np.newaxis]
    channels = (1, 3) if grey else (3,)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in channels or not image.size:
        taken = " or ".join(f"(height, width, {count})" for count in channels)
        problem = Problem(
            info.name,
            f"{image.dtype} of shape {image.shape}",
            f"one image, uint8 of shape {taken}, RGB",
            "decode it, for example with numpy.asarray(PIL.Image.open(FILE).convert('RGB'))",
        )
        raise MistifyError(ErrorCode.INVALID_DATASET, "the image cannot be prepared", [problem])
    return image


def _channels(image: Array, preparation: ImagePreparation) -> Floats:
    """Return the input's channels, in its order."""
    pixels = image.astype(np.float32)
    if preparation.colour == "grey" and image.shape[2] == len(_GREY):
        pixels = np.asarray(pixels @ _GREY[:, np.newaxis], np.float32)
    return np.flip(pixels, -1) if preparation.colour == "bgr" else pixels


def _nearest(pixels: Floats, axis: int, size: int) -> Floats:
    """Resize pixels along an axis; each new pixel is the old one at its centre."""
    length = pixels.shape[axis]
    places = np.minimum((np.arange(size) + 0.5) * length / size, length - 1).astype(np.int64)
    taken: Floats = np.take(pixels, places, axis)
    return taken


def _bilinear(pixels: Floats, axis: int, size: int) -> Floats:
    """Resize pixels along an axis by interpolation with antialiasing.

    A new pixel is the weighted mean of the old ones around its centre, with weights that fall to zero at a
    distance of one pixel: one old pixel, or one new pixel when reducing the size.
    """
    length = pixels.shape[axis]
    if length == size:
        return pixels
    step = length / size
    reach = max(step, 1.0)
    middles = (np.arange(size) + 0.5) * step
    first = np.floor(middles - reach).astype(np.int64)
    places = first[:, np.newaxis] + np.arange(int(2 * reach) + 2)
    weights = np.maximum(0, 1 - np.abs(places + 0.5 - middles[:, np.newaxis]) / reach)
    weights *= (places >= 0) & (places < length)
    weights /= weights.sum(1, keepdims=True)
    places = np.clip(places, 0, length - 1)
    broadcast = [1] * pixels.ndim
    broadcast[axis] = size
    resized = np.zeros([size if each == axis else n for each, n in enumerate(pixels.shape)], np.float32)
    for place, weight in zip(places.T, weights.T.astype(np.float32), strict=True):
        resized += np.take(pixels, place, axis) * weight.reshape(broadcast)
    return resized


def _scaled(pixels: Floats, preparation: ImagePreparation) -> Floats:
    if preparation.mean is None or preparation.std is None:
        scaled: Floats = pixels * np.float32(preparation.factor) + np.float32(preparation.offset)
        return scaled
    mean, std = np.array(preparation.mean, np.float32), np.array(preparation.std, np.float32)
    return (pixels - mean) / std
