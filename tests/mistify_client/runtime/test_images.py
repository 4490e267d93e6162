"""Images are prepared exactly as TensorFlow prepares training data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from executors.readers.decoding import decode_image
from mistify.config.data.preparation import ImagePreparation, Preparation, TokenPreparation
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest, TensorInfo
from mistify.package.records import PackagedFile
from mistify_client import load
from mistify_client.cli.images import read_image
from mistify_client.runtime.images import prepared_image

IMAGE = np.random.default_rng(0).integers(0, 256, (29, 41, 3), np.uint8)
INPUT = TensorInfo(name="photo", dtype="float32", shape=(-1, 16, 12, 3))


def prepared(image: Any, info: TensorInfo = INPUT, size: tuple[int, int] = (16, 12), **declared: Any) -> Any:
    return prepared_image(image, ImagePreparation(**{"size": size, "colour": "rgb"} | declared), info)


@pytest.mark.parametrize("size", [(16, 12), (29, 41), (7, 60), (80, 3), (1, 1), (58, 82)])
@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_images_are_resized_like_in_tensorflow(size: tuple[int, int], method: Any) -> None:
    expected = tf.image.resize(IMAGE, size, method, antialias=True).numpy()
    actual = prepared(IMAGE, size=size, resize=method)[0]
    assert actual.dtype == np.float32
    assert np.abs(actual - expected).max() <= 0.5 + 1e-3  # values are rounded, as in image files
    np.testing.assert_array_equal(actual, np.round(actual))


def test_colours_and_layout_are_converted_to_those_of_the_input() -> None:
    size = IMAGE.shape[:2]
    np.testing.assert_array_equal(prepared(IMAGE, size=size)[0], IMAGE)
    np.testing.assert_array_equal(prepared(IMAGE, size=size, colour="bgr")[0], IMAGE[..., ::-1])
    first = prepared(IMAGE, size=size, layout="channels_first")
    np.testing.assert_array_equal(first[0], np.transpose(IMAGE, (2, 0, 1)))
    assert first.flags.c_contiguous
    grey = prepared(IMAGE, size=size, colour="grey")
    expected = tf.image.rgb_to_grayscale(tf.cast(IMAGE, tf.float32)).numpy()
    np.testing.assert_allclose(grey[0], np.round(expected), atol=1)
    for one in (IMAGE[..., 0], IMAGE[..., :1]):
        np.testing.assert_array_equal(prepared(one, size=size, colour="grey")[0, ..., 0], IMAGE[..., 0])


def test_values_are_scaled_per_channel_in_the_order_of_the_input() -> None:
    size = IMAGE.shape[:2]
    np.testing.assert_allclose(
        prepared(IMAGE, size=size, factor=1 / 127.5, offset=-1.0)[0], IMAGE / 127.5 - 1, atol=1e-6
    )
    mean, std = (103.9, 116.8, 123.7), (1.0, 2.0, 4.0)
    actual = prepared(IMAGE, size=size, colour="bgr", mean=mean, std=std)[0]
    np.testing.assert_allclose(actual, (IMAGE[..., ::-1] - np.array(mean)) / np.array(std), atol=1e-4)


def test_integer_inputs_receive_integers() -> None:
    info = INPUT.model_copy(update={"dtype": "uint8"})
    assert prepared(IMAGE, info).dtype == np.uint8
    signed = INPUT.model_copy(update={"dtype": "int8"})
    expected = IMAGE.astype(np.int16) - 128
    np.testing.assert_array_equal(prepared(IMAGE, signed, IMAGE.shape[:2], offset=-128.0)[0], expected)
    quantized = INPUT.model_copy(update={"dtype": "int8", "scale": 1.0, "zero_point": -128})
    assert prepared(IMAGE, quantized).dtype == np.float32  # a float value, which the model quantizes


@pytest.mark.parametrize(
    "image", [IMAGE.astype(np.float32), IMAGE[..., :1], IMAGE[0], IMAGE[np.newaxis], IMAGE[:0]]
)
def test_arrays_that_are_not_images_are_refused(image: Any) -> None:
    with pytest.raises(MistifyError, match=r"photo: got .* of shape .*; expected one image, uint8") as caught:
        prepared(image)
    assert caught.value.code is ErrorCode.INVALID_DATASET


def declare(package: Any, **fields: Any) -> Any:
    Manifest.model_validate(Manifest.load(package).model_dump() | fields).save(package)
    return load(package)


def test_a_model_prepares_images_as_its_package_declares(package: Any) -> None:
    pixels = IMAGE[:4, :4]
    image = {"image": Preparation(image=ImagePreparation(size=(4, 4), colour="grey", factor=1 / 255))}
    model = declare(package, preparation=image)
    made = model.prepare(pixels)
    np.testing.assert_array_equal(model.prepare(pixels, "image"), made)
    assert made.shape == (1, 4, 4, 1)
    assert made.max() <= 1
    assert model(made).shape == (1, 3)
    with pytest.raises(MistifyError, match="scores: got an image; expected the name of one of image"):
        model.prepare(pixels, "scores")


@pytest.mark.parametrize("size", [(16, 12), (58, 82), (29, 41)])
@pytest.mark.parametrize("colour", ["rgb", "grey"])
@pytest.mark.parametrize("suffix", ["png", "jpeg"])
def test_image_files_are_prepared_as_training_data_are_read(
    tmp_path: Path, size: tuple[int, int], colour: Any, suffix: str
) -> None:
    path = tmp_path / f"photo.{suffix}"
    smooth = np.linspace(0, 255, 29 * 41 * 3).reshape(29, 41, 3).astype(np.uint8)
    Image.fromarray(smooth).save(path, quality=95)
    shape = (*size, 3 if colour == "rgb" else 1)
    expected = decode_image(path.read_bytes(), shape).astype(np.float32)
    actual = prepared(read_image(path), size=size, colour=colour)[0]
    assert np.abs(actual - expected).max() <= (1 if suffix == "png" else 4)  # decoders of JPEG differ


@pytest.fixture
def texts(pair_package: Any) -> Any:
    """Return a package whose first input takes tokens."""
    content = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nfine\nday\n##s\n"
    (pair_package / "vocab.txt").write_bytes(content)
    files = Manifest.load(pair_package).files | {"vocab.txt": PackagedFile.of(content)}
    tokens = {"left": Preparation(tokens=TokenPreparation(vocabulary="vocab.txt", length=4))}
    declare(pair_package, preparation=tokens, files=files)
    return pair_package


def test_a_model_prepares_texts_as_training_data_are_read(texts: Any) -> None:
    model = load(texts)
    for text, ids in (("Fine days", [2, 4, 5, 3]), ("day", [2, 5, 3, 0]), ("days odd", [2, 5, 6, 3])):
        made = model.prepare(text)
        assert made.dtype == np.float32
        assert made.tolist() == [ids]
    assert model.prepare("day", "left").tolist() == [[2, 5, 3, 0]]
    with pytest.raises(MistifyError, match=r"right: got a text; expected the name of one of left"):
        model.prepare("day", "right")
    with pytest.raises(MistifyError, match=r'"preparation": \{"left": \{"image": \{\}\}\}'):
        model.prepare(IMAGE)


def test_a_package_that_was_replaced_in_its_place_has_its_own_vocabulary(texts: Any) -> None:
    assert load(texts).prepare("day").tolist() == [[2, 5, 3, 0]]
    content = b"[PAD]\n[UNK]\nday\n"
    (texts / "vocab.txt").write_bytes(content)
    declare(texts, files=Manifest.load(texts).files | {"vocab.txt": PackagedFile.of(content)})
    assert load(texts).prepare("day").tolist() == [[2, 0, 0, 0]]


def test_a_vocabulary_damaged_after_loading_is_reported(texts: Any) -> None:
    model = load(texts)
    (texts / "vocab.txt").write_text("fine\nday\n")
    with pytest.raises(MistifyError, match=r"vocab\.txt.*expected 37 bytes") as caught:
        model.prepare("day")
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


@pytest.mark.parametrize(
    "tokens", [{}, {"image": Preparation(tokens=TokenPreparation(vocabulary="words.txt"))}]
)
def test_a_model_without_declared_preparation_refuses_images(package: Any, tokens: Any) -> None:
    model = declare(package, preparation=tokens)
    with pytest.raises(MistifyError, match=r'"preparation": \{"image": \{"image": \{\}\}\}') as caught:
        model.prepare(IMAGE)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_model_knows_the_names_of_its_classes(package: Any, pair_package: Any) -> None:
    assert load(package).labels is None
    assert declare(package, labels={"scores": ("cat", "dog", "eel")}).labels == ("cat", "dog", "eel")
    assert declare(pair_package, labels={"mix": ("no", "yes")}).labels == ("no", "yes")
    both = {"mix": ("a", "b"), "difference": ("c", "d", "e", "f")}
    assert declare(pair_package, labels=both).labels == both
