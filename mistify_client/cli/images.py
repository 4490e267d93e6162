"""Image files as RGB pixels."""

from pathlib import Path

import numpy as np

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify_client.runtime.inputs import Array


def read_image(path: Path) -> Array:
    """Return the pixels of an image file, RGB, uint8 [height, width, 3].

    They are those with which models are trained: the orientation in a photo's metadata is ignored.

    Raises:
        MistifyError: NOT_FOUND, Pillow is not installed; INVALID_DATASET, it cannot read the file.
    """
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError as error:
        message = f"{path} cannot be read: images need Pillow; pip install 'mistify-porting[images]'"
        raise MistifyError(ErrorCode.NOT_FOUND, message) from error
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        problem = Problem(str(path), str(error), "a .npy file, an image, or a .txt file", "give another file")
        raise MistifyError(ErrorCode.INVALID_DATASET, f"{path} cannot be used", [problem]) from error
