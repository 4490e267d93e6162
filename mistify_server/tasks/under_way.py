"""What is under way, and since when: nothing may refer yet to the files that it has made."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds by which the clock of a file system may be behind.
_FILE_CLOCK: Final = 1.0


class UnderWay:
    """The times at which things began that have not ended. Used from one event loop."""

    def __init__(self) -> None:
        self._begun: dict[object, float] = {}

    @property
    def since(self) -> float:
        """Return a time before the oldest of them made any file, in seconds since 1970; now without any."""
        return min(self._begun.values(), default=time.time())

    @contextmanager
    def one(self) -> Iterator[None]:
        """Let one more thing be under way in the block."""
        one = object()
        self._begun[one] = time.time() - _FILE_CLOCK
        try:
            yield
        finally:
            del self._begun[one]
