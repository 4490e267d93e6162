"""Start times of work in progress. Its new files may not be referenced yet, but must not be removed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Maximum lag of a file system's clock, in seconds.
_FILE_CLOCK: Final = 1.0


class InProgress:
    """The start times of all work in progress. Not thread-safe: use it from one event loop."""

    def __init__(self) -> None:
        self._starts: dict[object, float] = {}

    @property
    def oldest_start(self) -> float:
        """Return a time before the oldest entry created any file, in Unix seconds; now without entries."""
        return min(self._starts.values(), default=time.time())

    @contextmanager
    def entry(self) -> Iterator[None]:
        """Register the block as work in progress."""
        key = object()
        self._starts[key] = time.time() - _FILE_CLOCK
        try:
            yield
        finally:
            del self._starts[key]
