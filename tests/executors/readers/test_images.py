"""Encoded images, and how large they may be once they are decoded."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from executors.readers.images import decode_image

SHAPE = (6, 5, 3)

#: As TensorFlow takes it: of several frames the first.
FORMATS = ["PNG", "JPEG", "GIF", "BMP"]


def encoded(kind, size, frames=1):
    content = io.BytesIO()
    images = [Image.new("L", size, number) for number in range(frames)]
    several = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
    images[0].save(content, kind, **several)
    return content.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_is_decoded_in_the_size_of_the_model(kind):
    image = decode_image(encoded(kind, (40, 17)), SHAPE)
    assert (image.shape, image.dtype) == (SHAPE, np.uint8)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_of_more_than_50_megapixels_is_refused(kind):
    with pytest.raises(ValueError, match="50,001,000 pixels, more than 50,000,000"):
        decode_image(encoded(kind, (50_001, 1_000)), SHAPE)


def test_all_frames_of_an_animation_count():
    content = encoded("GIF", (40, 17), frames=3)
    assert decode_image(content, SHAPE).shape == SHAPE
    with pytest.raises(ValueError, match="60,000,000 pixels, more than 50,000,000"):
        decode_image(encoded("GIF", (20_000, 1_000), frames=3), SHAPE)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("kept", [3, 9, 20])
def test_an_image_that_is_cut_off_is_refused(kind, kept):
    with pytest.raises(ValueError, match=r"\w"):
        decode_image(encoded(kind, (40, 17))[:kept], SHAPE)


def test_a_chunk_before_the_size_of_a_png_is_refused():
    content = encoded("PNG", (40, 17))
    hidden = struct.pack(">I4s", 13, b"hiDe") + bytes(17)
    with pytest.raises(ValueError, match="a PNG that does not begin with its size"):
        decode_image(content[:8] + hidden + content[8:], SHAPE)
