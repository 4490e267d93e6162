"""Encoded images are decoded like in Pillow and Keras, up to a maximum size."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from executors.readers.decoding import FORMATS, decode_image

SHAPE = (6, 5, 3)
LOSSLESS = {"PNG": {}, "BMP": {}, "PPM": {}, "TIFF": {}, "WEBP": {"lossless": True}, "JPEG2000": {}}
COLOURS = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
GREY = COLOURS[..., 0]


def stored(image, kind, **options):
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def encoded(kind, size):
    return stored(Image.new("L", size, 7).convert("RGB" if kind in ("WEBP", "AVIF") else "L"), kind)


def of_palette(alpha=False):
    image = Image.fromarray(COLOURS).convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    if alpha:
        image.info["transparency"] = bytes(range(0, 256, 16))
    return image


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_is_resized_for_the_model(kind):
    image = decode_image(encoded(kind, (40, 17)), SHAPE)
    assert (image.shape, image.dtype) == (SHAPE, np.uint8)
    np.testing.assert_allclose(image, 7, atol=1)


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("channels", [3, None])
def test_stored_colours_are_decoded(kind, channels):
    content = stored(Image.fromarray(COLOURS), kind, **LOSSLESS[kind])
    np.testing.assert_array_equal(decode_image(content, (6, 5, channels)), COLOURS)


@pytest.mark.parametrize("kind", [*sorted(LOSSLESS.keys() - {"WEBP"}), "GIF"])
def test_grey_images_stay_grey_in_one_or_three_channels(kind):
    content = stored(Image.fromarray(GREY), kind)
    np.testing.assert_array_equal(decode_image(content, (6, 5, 1))[..., 0], GREY)
    np.testing.assert_array_equal(decode_image(content, SHAPE), np.stack([GREY] * 3, -1))


@pytest.mark.parametrize("kind", ["BMP", "GIF", "PNG", "TIFF"])
@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_an_image_with_a_palette_has_the_colours_of_the_palette(kind, channels, mode):
    image = of_palette()
    decoded = decode_image(stored(image, kind), (6, 5, channels))
    expected = np.asarray(image.convert(mode)).reshape(6, 5, channels)
    np.testing.assert_allclose(decoded.astype(int), expected, atol=1 if channels == 1 else 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_transparency_is_ignored(kind):
    content = stored(of_palette(alpha=kind == "PNG"), kind, **({} if kind == "PNG" else {"transparency": 3}))
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))
    np.testing.assert_array_equal(decode_image(content, SHAPE), expected[..., :3])


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_the_upper_8_of_16_bits_are_kept(kind):
    deep = np.linspace(0, 65_535, 30).astype(np.uint16).reshape(6, 5)
    np.testing.assert_array_equal(
        decode_image(stored(Image.fromarray(deep), kind), (6, 5, 1))[..., 0], deep // 256
    )


@pytest.mark.parametrize("chunk", [(b"gAMA", struct.pack(">I", 45_455)), (b"sRGB", b"\0"), None])
@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA"])
def test_greys_do_not_depend_on_the_gamma_that_a_png_names(chunk, mode):
    info, image = PngImagePlugin.PngInfo(), Image.fromarray(COLOURS).convert(mode)
    if chunk is not None:
        info.add(*chunk)
    grey = decode_image(stored(image, "PNG", pnginfo=info), (6, 5, 1))
    np.testing.assert_array_equal(grey[..., 0], np.asarray(image.convert("L")))


@pytest.mark.parametrize("mode", ["CMYK", "L", "RGB"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_jpegs_in_any_colour_space_are_decoded_like_in_pillow(mode, channels):
    content = stored(Image.new("RGB", (5, 6), (200, 60, 90)).convert(mode), "JPEG", quality=95)
    expected = Image.open(io.BytesIO(content)).convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    decoded = decode_image(content, (6, 5, channels))
    np.testing.assert_allclose(decoded.astype(int), np.asarray(expected, int).reshape(6, 5, channels), atol=3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_tag_is_ignored(kind):
    """As in `keras.utils.image_dataset_from_directory`, `keras.utils.load_img` and torchvision."""
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    content = stored(Image.new("RGB", (5, 6)), kind, exif=exif)
    assert decode_image(content, (None, None, 3)).shape == SHAPE


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "WEBP"])
def test_the_first_image_of_an_animation_is_used(kind):
    frames = [Image.new("RGB", (5, 6), (colour, 0, 0)) for colour in (255, 0, 100)]
    options = {"lossless": True} if kind == "WEBP" else {}
    content = stored(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    np.testing.assert_array_equal(decode_image(content, SHAPE), np.asarray(frames[0]))


@pytest.mark.parametrize("kind", sorted({*FORMATS} - {"AVIF", "WEBP", "JPEG2000"}))  # slow or cannot store it
def test_an_image_of_more_than_50_megapixels_is_refused(kind):
    with pytest.raises(ValueError, match="50,001,000 pixels, more than 50,000,000"):
        decode_image(encoded(kind, (50_001, 1_000)), SHAPE)


def test_an_image_that_pillow_refuses_to_open_is_refused():
    head = struct.pack("<2sIIIIiiHHIIIIII", b"BM", 54, 0, 54, 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="more than 50,000,000 pixels"):
        decode_image(head, SHAPE)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("kept", [3, 9, 20, 0.5])
def test_a_truncated_image_is_refused_with_a_clear_message(kind, kept):
    content = stored(Image.fromarray(np.tile(COLOURS, (8, 8, 1))), kind)
    kept = int(kept * len(content)) if isinstance(kept, float) else kept
    with pytest.raises(ValueError, match=r"damaged|truncated|not one of AVIF|begin with its size"):
        decode_image(content[:kept], SHAPE)


def test_pixels_of_32_bits_are_refused():
    with pytest.raises(ValueError, match="32 bits, not 8 or 16"):
        decode_image(stored(Image.fromarray(np.ones((6, 5), np.float32)), "TIFF"), SHAPE)


def test_a_chunk_before_the_size_of_a_png_is_refused():
    content = encoded("PNG", (40, 17))
    hidden = struct.pack(">I4s", 13, b"hiDe") + bytes(17)
    with pytest.raises(ValueError, match="a PNG that does not begin with its size"):
        decode_image(content[:8] + hidden + content[8:], SHAPE)
