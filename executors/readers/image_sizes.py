"""The size of a JPEG or PNG in pixels, and whether a PNG is in colour, read from the headers."""

import struct
from typing import Final

import tensorflow as tf

#: The first bytes of a PNG or JPEG file.
PNG: Final = b"\x89PNG\r\n\x1a\n"
JPEG: Final = b"\xff\xd8\xff"


def pixel_count(content: bytes) -> int:
    """Return the number of pixels of an encoded image.

    Args:
        content: The beginning of a JPEG or PNG file.

    Raises:
        ValueError: The headers of a PNG are damaged.
        InvalidArgumentError: TensorFlow's error for a damaged JPEG.
    """
    if content.startswith(JPEG):
        height, width, _ = tf.io.extract_jpeg_shape(content)
        return int(height) * int(width)
    # Decoders skip unknown chunks, even before this one.
    if content[12:16] != b"IHDR":
        raise ValueError("a PNG that does not begin with its size")
    try:
        width, height = struct.unpack_from(">II", content, 16)
    except struct.error as error:
        raise ValueError("a truncated image") from error
    return int(width) * int(height)


def is_colour_png(content: bytes) -> bool:
    """Check whether a PNG has colours, in its pixels or in a palette.

    Args:
        content: The beginning of a PNG file.
    """
    return len(content) > 25 and content[25] & 2 != 0  # the type of the colours, in the first header
