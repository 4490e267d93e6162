"""A process in which no thread can be started."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def without_threads() -> Iterator[None]:
    """Prevent new threads by requesting a stack that does not fit into memory."""
    size = threading.stack_size(2**46)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        threading.Thread(target=lambda: None).start()
    try:
        yield
    finally:
        threading.stack_size(size)
