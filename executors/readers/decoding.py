"""Decoding of images to the channels and the size of an input."""

import io
from collections.abc import Mapping
from typing import Final

import numpy as np
import tensorflow as tf
from PIL import Image, UnidentifiedImageError

from executors.data.storage import Array
from executors.readers.image_sizes import JPEG, PNG, is_colour_png, pixel_count
from executors.structure.signature import Shape

#: Formats that are recognizable by their first bytes, and readable without another program.
_WANTED: Final = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
Image.init()  # registers the formats
FORMATS: Final = tuple(name for name in _WANTED if name in Image.OPEN)

#: Lower-case file suffixes of these formats.
SUFFIXES: Final = frozenset(
    suffix for suffix, name in Image.registered_extensions().items() if name in FORMATS
)

#: Number of channels -> Pillow's mode.
MODES: Final[Mapping[int, str]] = {1: "L", 3: "RGB", 4: "RGBA"}

#: Maximum number of pixels of a decoded image.
_MOST_PIXELS: Final = 50_000_000

_DAMAGED: Final = "it is damaged or truncated"


def takes_images(shape: Shape) -> bool:
    """Check whether inputs of a shape [height, width, channels] can be images."""
    return len(shape) == 3 and (shape[2] is None or shape[2] in MODES)


def decode_image(content: bytes, shape: Shape) -> Array:
    """Return an encoded image as uint8 [height, width, channels], resized to the requested shape.

    Pixels are the same as in Keras and Pillow: the orientation in a photo's metadata is ignored, only the
    upper 8 of 16 bits are used, and only the first image of an animation. Greys of a colour PNG are those of
    Pillow, whether or not the file names a gamma.

    Args:
        content: An image in one of `FORMATS`. TensorFlow decodes JPEG and most PNG, in two thirds of
            Pillow's time.
        shape: Shape of an input that takes images; None for a variable size.

    Raises:
        ValueError: The image cannot be decoded, or is larger than 50 megapixels.
    """
    height, width, channels = shape
    image = _by_tensorflow(content, channels) if _suits_tensorflow(content, channels) else None
    if image is None:
        image = _by_pillow(content, channels)
    if None not in (height, width) and image.shape[:2] != (height, width):
        resized = tf.image.resize(image, (height, width), antialias=True)
        image = np.asarray(tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8))
    return image


def _suits_tensorflow(content: bytes, channels: int | None) -> bool:
    if channels == 1 and content.startswith(PNG):
        # It mixes colours in linear light where a file names its gamma, as with gAMA or sRGB.
        return not is_colour_png(content)
    return content.startswith((JPEG, PNG)) and channels != 4


def _by_tensorflow(content: bytes, channels: int | None) -> Array | None:
    """Return the pixels of a JPEG or PNG; None if TensorFlow cannot decode it, such as CMYK to grey."""
    try:
        _check_size(pixel_count(content))
        return np.asarray(tf.io.decode_image(content, channels or 0, expand_animations=False))
    except tf.errors.InvalidArgumentError:
        return None


def _by_pillow(content: bytes, channels: int | None) -> Array:
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_size(image.width * image.height)
            pixels = np.asarray(_in_mode(image, None if channels is None else MODES[channels]))
    except UnidentifiedImageError as error:
        raise ValueError(f"it is not one of {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise ValueError(f"more than {_MOST_PIXELS:,} pixels") from error
    except (_RefusedError, MemoryError):
        raise
    except Exception as error:  # decoders may raise anything
        raise ValueError(_DAMAGED) from error
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def _in_mode(image: Image.Image, mode: str | None) -> Image.Image:
    """Convert an image to a mode in `MODES`; None keeps it greyscale or colour."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise _RefusedError("its pixels have 32 bits, not 8 or 16")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert(mode or ("L" if image.mode in ("1", "L") else "RGB"))


def _check_size(pixels: int) -> None:
    if pixels > _MOST_PIXELS:
        raise _RefusedError(f"{pixels:,} pixels, more than {_MOST_PIXELS:,}")


class _RefusedError(ValueError):
    """A decodable image that is refused."""
