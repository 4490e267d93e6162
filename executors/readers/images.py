"""Image folders: one directory per class, with images at any depth; or images without labels."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from executors.data.dataset import Origin
from executors.data.errors import invalid
from executors.data.storage import Array, Rows
from executors.readers.decoding import FORMATS, decode_image, takes_images
from executors.readers.formats import Arrays, Reader, Request, Schema, append
from executors.readers.image_files import directories, images, is_image, left_out, without_images
from executors.structure.signature import Shape
from mistify.errors import MistifyError, Problem

_BLOCK: Final = 256
_THREADS: Final = 4

#: Maximum number of files per report.
_MOST_PROBLEMS: Final = 10


class ImageFolderReader(Reader):
    """A reader of `CLASS/NAME.jpg`: classes are numbered in the order of their names in the training data.

    Images are resized to the model's input. Images without labels may also be in the folder itself.
    """

    def accepts(self, path: Path) -> bool:
        """Check for a directory of directories or images."""
        return path.is_dir() and any(entry.is_dir() or is_image(entry) for entry in path.iterdir())

    def read(self, path: Path, request: Request) -> Arrays:
        """Return all images as uint8 [examples, height, width, channels] `x`, and their classes `y`."""
        shape = _shape(path, request)
        labelled = dict(_labelled(path, request)) if request.labelled else None
        files = list(images(path, path) if labelled is None else labelled)
        rows = Rows()
        with ThreadPoolExecutor(_THREADS) as pool:
            for at in range(0, len(files), _BLOCK):
                block = files[at : at + _BLOCK]
                _append(rows, path, list(pool.map(lambda file: _image(file, path, shape), block)), block)
        arrays = {"x": rows.array()}
        return arrays if labelled is None else {**arrays, "y": np.array([*labelled.values()], np.int64)}

    def schema(self, path: Path, request: Request) -> Schema:
        """Return the sorted names of the class directories."""
        names = [directory.name for directory in directories(path)]
        outputs = [output.name for output in request.outputs]
        return Schema(dict.fromkeys(outputs, tuple(names)), dict.fromkeys(outputs, True))

    def origins(self, path: Path, request: Request) -> Mapping[str, Origin]:
        """Return that the only input takes images."""
        return {request.signature.inputs[0].name: "image"}

    def left_out(self, path: Path, request: Request) -> str:
        """Describe the files that are not readable images, or are not in a class directory."""
        return left_out(path, by_class=request.labelled)


def _shape(path: Path, request: Request) -> Shape:
    """Return the shape of the only input, which must take images.

    Raises:
        MistifyError: The model takes other inputs.
    """
    inputs = request.signature.inputs
    if len(inputs) > 1 or len(request.outputs) > 1 or not takes_images(inputs[0].shape):
        expected = "data for this model's inputs and outputs"
        raise invalid(Problem(str(path), "an image folder", expected, "use another format"))
    return inputs[0].shape


def _labelled(path: Path, request: Request) -> Iterator[tuple[Path, int]]:
    """Yield every image with its class, sorted by name.

    Raises:
        MistifyError: There are no classes, a class that the training data lack, a class whose files are not
            images, or a link out of the folder.
    """
    (output,) = request.signature.outputs
    names = request.schema.classes.get(output.name, ())
    classes = directories(path)
    if not classes:
        fix = 'sort them by class, or give them as "unlabelled"'
        raise invalid(Problem(str(path), "images without classes", "a directory for each class", fix))
    for directory in classes:
        if directory.name not in names:
            expected = request.expected_class(output)
            raise invalid(Problem(str(path), f"a class {directory.name}", expected, "rename or remove it"))
        if others := without_images(directory, path):
            actual, expected = f"{others} in {directory.name}, and no images", f"images: {', '.join(FORMATS)}"
            raise invalid(Problem(str(path), actual, expected, "convert them, or remove the directory"))
        for file in images(directory, path):
            yield file, names.index(directory.name)


def _image(file: Path, root: Path, shape: Shape) -> Array | str:
    """Return an image, or a description of its problem."""
    try:
        return decode_image(file.read_bytes(), shape)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return f"{file.relative_to(root)}, which cannot be decoded ({reason})"


def _append(rows: Rows, path: Path, decoded: list[Array | str], files: list[Path]) -> None:
    if problems := [image for image in decoded if isinstance(image, str)]:
        raise _unreadable(path, problems)
    arrays = [image for image in decoded if not isinstance(image, str)]
    places = [str(file.relative_to(path)) for file in files]
    append(rows, path, "an image", list(zip(places, arrays, strict=True)))


def _unreadable(path: Path, problems: list[str]) -> MistifyError:
    expected, fix = f"images: {', '.join(FORMATS)}", "repair, convert or remove it"
    return invalid(*(Problem(str(path), actual, expected, fix) for actual in problems[:_MOST_PROBLEMS]))
