"""Faster imports of TensorFlow and Keras, in half the time."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Libraries that Keras imports if installed, for plots, scikit-learn pipelines and data frames.
_UNUSED: Final = ("matplotlib", "pandas", "sklearn")


@contextmanager
def quick_imports() -> Iterator[None]:
    """Hide, within the block, libraries that Keras imports but workers do not need.

    Garbage collection is disabled within the block and later skips the imported objects: there are hundreds
    of thousands, and they live as long as the process.
    """
    hidden = [name for name in _UNUSED if name not in sys.modules]
    # None marks a module as missing.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        for name in hidden:
            del sys.modules[name]
