"""`.keras` and `.h5` files, of Keras 3 or 2."""

from pathlib import Path

import keras

from executors.sources.errors import unreadable
from executors.sources.keras.keras2 import is_keras2, load_keras2


def load_file(path: Path) -> keras.Model:
    """Load the model in a file; a Keras 2 model that Keras 3 refuses is translated.

    Raises:
        MistifyError: INVALID_MODEL, naming the file and the problem.
    """
    try:
        return keras.models.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        # Keras raises a dozen types of exceptions for unreadable files.
        if not is_keras2(path):
            raise unreadable(path, error) from error
        return load_keras2(path)
