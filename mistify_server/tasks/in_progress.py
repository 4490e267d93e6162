"""Start times of work in progress. Its new files may not be referenced yet, but must not be removed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

#: Maximum lag of a file system's clock, in seconds.
_FILE_CLOCK: Final = 1.0


class _Start(NamedTuple):
    """A start by the clock, which may be corrected later, and by a steady one, both in seconds."""

    unix: float
    steady: float


class InProgress:
    """The start times of all work in progress. Not thread-safe: use it from one event loop."""

    def __init__(self) -> None:
        self._starts: dict[object, _Start] = {}

    @property
    def oldest_start(self) -> float:
        """Return a time before the oldest entry created any file, in Unix seconds; now without entries.

        It is also before those that were created after the clock was set back.
        """
        now, steady = time.time(), time.monotonic()
        return min((min(at.unix, now - (steady - at.steady)) for at in self._starts.values()), default=now)

    @contextmanager
    def entry(self) -> Iterator[None]:
        """Register the block as work in progress."""
        key = object()
        self._starts[key] = _Start(time.time() - _FILE_CLOCK, time.monotonic() - _FILE_CLOCK)
        try:
            yield
        finally:
            del self._starts[key]
