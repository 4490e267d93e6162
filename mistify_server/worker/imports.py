"""Importing TensorFlow and Keras without the half of the time that a worker has no use for."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Keras imports these where they are installed, for plots and for models in scikit-learn's pipelines.
_UNUSED: Final = ("matplotlib", "sklearn")


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import in the block as if libraries that Keras does not need here were not installed.

    Meanwhile Python does not collect garbage, and later never scans the imported objects: there are hundreds
    of thousands, and they stay.
    """
    hidden = [name for name in _UNUSED if name not in sys.modules]
    # None says that there is no such module.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        for name in hidden:
            del sys.modules[name]
