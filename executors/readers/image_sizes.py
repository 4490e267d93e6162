"""How large an encoded image becomes, read from its headers before anything of it is decoded."""

import struct
from typing import Final

import tensorflow as tf

#: Bytes of a GIF's header, and of the description of each of its frames.
_GIF_HEADER: Final = 13
_GIF_FRAME: Final = 10
_GIF_EXTENSION: Final = 2


def pixel_count(content: bytes) -> int:
    """Return the pixels of an encoded image, of all its frames together.

    Raises:
        ValueError: It is no PNG, JPEG, GIF or BMP, or its headers are damaged.
        InvalidArgumentError: TensorFlow's, for a damaged JPEG.
    """
    try:
        if content.startswith(b"\x89PNG\r\n\x1a\n"):
            return _png_pixels(content)
        if content.startswith(b"\xff\xd8\xff"):
            height, width, _ = tf.io.extract_jpeg_shape(content)
            return int(height) * int(width)
        if content.startswith(b"GIF8"):
            return _gif_pixels(content)
        if content.startswith(b"BM"):
            return _product("<ii", content, 18)
    except (struct.error, IndexError) as error:
        raise ValueError("an image that is cut off") from error
    raise ValueError("no PNG, JPEG, GIF or BMP")


def _png_pixels(content: bytes) -> int:
    # Decoders skip chunks that they do not know, also before this one.
    if content[12:16] != b"IHDR":
        raise ValueError("a PNG that does not begin with its size")
    return _product(">II", content, 16)


def _gif_pixels(content: bytes) -> int:
    """Return the pixels of all frames: each has a size of its own, and all are decoded to get the first."""
    pixels = 0
    at = _GIF_HEADER + _palette_bytes(content[_GIF_HEADER - 3])
    while (kind := content[at : at + 1]) not in (b";", b""):
        if kind == b",":
            pixels += _product("<HH", content, at + 5)
            at += _GIF_FRAME + _palette_bytes(content[at + _GIF_FRAME - 1]) + 1
        elif kind == b"!":
            at += _GIF_EXTENSION
        else:
            raise ValueError("a damaged GIF")
        while size := content[at]:
            at += 1 + size
        at += 1
    return pixels


def _product(sides: str, content: bytes, at: int) -> int:
    """Return width times height, which are written one after the other; those of a BMP may be negative."""
    width, height = struct.unpack_from(sides, content, at)
    return abs(int(width) * int(height))


def _palette_bytes(flags: int) -> int:
    """Return how long the colors are that follow a header with these flags."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0
