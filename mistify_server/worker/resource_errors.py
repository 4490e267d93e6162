"""Errors of a machine that has run out of memory or disk space, and those of conversion."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import tensorflow as tf

#: Errors that tell of the machine, and nothing of a model.
RESOURCE_ERRORS: Final = (MemoryError, OSError, tf.errors.ResourceExhaustedError)


@contextmanager
def suppress_conversion_errors() -> Iterator[None]:
    """Suppress any exception that the converter raises for a model; resource errors still propagate.

    Raises:
        MemoryError: There is too little memory, as far as Python knows.
        OSError: A disk is full, or a file cannot be read or written.
        ResourceExhaustedError: TensorFlow has run out of either.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, RESOURCE_ERRORS):
            raise
