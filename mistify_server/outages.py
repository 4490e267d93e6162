"""Outages: when devices could not report."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from mistify.errors import MistifyError

#: Maximum number of outages that are remembered.
_MOST: Final = 100


class Outages:
    """The times in which no device could report, which do not count as their silence. Thread-safe."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._past: deque[tuple[datetime, datetime]] = deque(maxlen=_MOST)
        self._since: datetime | None = None
        self._lock = Lock()

    def over(self, since: datetime | None) -> None:
        """Note that an outage is over.

        Args:
            since: When it began; None if there was none.
        """
        if since is not None:
            self._past.append((since, max(since, self._now())))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note whether the block, which uses the store, fails."""
        try:
            yield
        except MistifyError:
            with self._lock:
                self._since = self._since or self._now()
            raise
        with self._lock:
            since, self._since = self._since, None
            self.over(since)

    def after(self, moment: datetime) -> timedelta:
        """Return for how long there were outages after a moment."""
        with self._lock:
            outages = [*self._past] if self._since is None else [*self._past, (self._since, self._now())]
        return sum((max(end - max(start, moment), timedelta()) for start, end in outages), timedelta())
