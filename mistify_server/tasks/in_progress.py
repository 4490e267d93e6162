"""Work in progress, and its start: nothing may refer yet to the files that it has made."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds by which the clock of a file system may be behind.
_FILE_CLOCK: Final = 1.0


class InProgress:
    """The start times of all work in progress. Used from one event loop."""

    def __init__(self) -> None:
        self._starts: dict[object, float] = {}

    @property
    def oldest_start(self) -> float:
        """Return a time before the oldest entry made any file, in seconds since 1970; now without entries."""
        return min(self._starts.values(), default=time.time())

    @contextmanager
    def entry(self) -> Iterator[None]:
        """Count the block as in progress."""
        key = object()
        self._starts[key] = time.time() - _FILE_CLOCK
        try:
            yield
        finally:
            del self._starts[key]
