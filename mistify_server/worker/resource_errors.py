"""Errors of a machine without memory or disk space, as opposed to conversion errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import tensorflow as tf

#: Errors caused by the machine rather than by a model.
RESOURCE_ERRORS: Final = (MemoryError, OSError, tf.errors.ResourceExhaustedError)


@contextmanager
def suppress_conversion_errors() -> Iterator[None]:
    """Suppress any exception that the converter raises for a model; resource errors still propagate.

    Raises:
        MemoryError: Python ran out of memory.
        OSError: A disk is full, or a file cannot be read or written.
        ResourceExhaustedError: TensorFlow ran out of memory or disk space.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, RESOURCE_ERRORS):
            raise
