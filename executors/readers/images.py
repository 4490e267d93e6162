"""Image folders: a directory for each class, with JPEG, PNG, GIF or BMP files in it; or files alone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import tensorflow as tf

from executors.data.errors import invalid
from executors.data.storage import Array, Rows
from executors.readers.formats import Arrays, Reader, Request, Schema, append
from executors.readers.image_sizes import pixel_count
from executors.structure.signature import Shape
from mistify.errors import MistifyError, Problem

_SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
_BLOCK: Final = 256
_THREADS: Final = 4

#: The most that an image may have once it is decoded, in all its frames.
_MOST_PIXELS: Final = 50_000_000

#: Files that are told at once.
_MOST_PROBLEMS: Final = 10


class ImageFolderReader(Reader):
    """Reads `CLASS/NAME.jpg`: classes are numbered in the order of their names in the training data.

    Images get the size that the model takes. Those without labels may also lie in the folder itself.
    """

    def accepts(self, path: Path) -> bool:
        """Check for a directory of directories or images."""
        return path.is_dir() and any(entry.is_dir() or _is_image(entry) for entry in path.iterdir())

    def read(self, path: Path, request: Request) -> Arrays:
        """Return all images as uint8 [examples, height, width, channels] `x`, and their classes `y`."""
        signature = request.signature
        several = len(signature.inputs) > 1 or len(request.outputs) > 1
        if several or len(signature.inputs[0].shape) != 3:
            raise invalid(
                Problem(str(path), "an image folder", "data for this model's inputs", "use another format")
            )
        labelled = dict(_labelled(path, request)) if request.labelled else None
        files = list(_all(path) if labelled is None else labelled)
        shape, images = signature.inputs[0].shape, Rows()
        with ThreadPoolExecutor(_THREADS) as pool:
            for at in range(0, len(files), _BLOCK):
                block = list(pool.map(lambda file: _image(file, shape), files[at : at + _BLOCK]))
                _append(images, path, block, files[at : at + _BLOCK])
        arrays = {"x": images.array()}
        return arrays if labelled is None else {**arrays, "y": np.array([*labelled.values()], np.int64)}

    def schema(self, path: Path, request: Request) -> Schema:
        """Return the sorted names of the directories."""
        names = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and _shown(entry))
        outputs = [output.name for output in request.outputs]
        return Schema(dict.fromkeys(outputs, tuple(names)), dict.fromkeys(outputs, True))


def decode_image(content: bytes, shape: Shape) -> Array:
    """Return an encoded image as uint8 [height, width, channels], of the size that is asked for.

    Raises:
        ValueError: It cannot be decoded, or is larger than 50 megapixels.
    """
    height, width, channels = shape
    try:
        if (pixels := pixel_count(content)) > _MOST_PIXELS:
            raise ValueError(f"{pixels:,} pixels, more than {_MOST_PIXELS:,}")
        image = tf.io.decode_image(content, channels or 0, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(error.message.splitlines()[0]) from error
    if None not in (height, width) and tuple(image.shape[:2]) != (height, width):
        resized = tf.image.resize(image, (height, width), antialias=True)
        image = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
    return np.asarray(image)


def _labelled(path: Path, request: Request) -> Iterator[tuple[Path, int]]:
    """Yield every image with its class, in the order of their names.

    Raises:
        MistifyError: No class, one that the training data do not have, or a link out of the folder.
    """
    (output,) = request.signature.outputs
    names = request.schema.classes.get(output.name, ())
    directories = _directories(path)
    if not directories:
        fix = 'sort them by class, or give them as "unlabelled"'
        raise invalid(Problem(str(path), "images without classes", "a directory for each class", fix))
    for directory in directories:
        if directory.name not in names:
            expected = request.expected_class(output)
            raise invalid(Problem(str(path), f"a class {directory.name}", expected, "rename or remove it"))
        for file in _images(directory, path):
            yield file, names.index(directory.name)


def _all(path: Path) -> Iterator[Path]:
    """Yield every image of a folder and of the directories in it.

    Raises:
        MistifyError: A link that leads out of the folder.
    """
    for directory in (path, *_directories(path)):
        yield from _images(directory, path)


def _directories(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and _shown(entry))


def _images(directory: Path, root: Path) -> Iterator[Path]:
    for file in sorted(directory.iterdir()):
        if not _is_image(file):
            continue
        if not file.resolve().is_relative_to(root.resolve()):
            actual = f"{directory.name}/{file.name}, a link that leads out of the folder"
            raise invalid(Problem(str(root), actual, "files", "copy the file"))
        yield file


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and _shown(path)


def _shown(path: Path) -> bool:
    return not path.name.startswith(".")


def _image(file: Path, shape: Shape) -> Array | str:
    try:
        return decode_image(file.read_bytes(), shape)
    except (OSError, ValueError) as error:
        return f"{file.parent.name}/{file.name}, which cannot be decoded ({error})"


def _append(arrays: Rows, path: Path, images: list[Array | str], files: list[Path]) -> None:
    problems = [image for image in images if isinstance(image, str)]
    if problems:
        raise _unreadable(path, problems)
    decoded = [image for image in images if not isinstance(image, str)]
    places = [f"{file.parent.name}/{file.name}" for file in files]
    append(arrays, path, "an image", list(zip(places, decoded, strict=True)))


def _unreadable(path: Path, problems: list[str]) -> MistifyError:
    expected, fix = "JPEG or PNG images", "repair or remove it"
    return invalid(*(Problem(str(path), actual, expected, fix) for actual in problems[:_MOST_PROBLEMS]))
