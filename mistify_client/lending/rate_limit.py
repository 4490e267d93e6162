"""A limit on the inferences that a device asks of a helper, kept on both sides."""

import time
from collections.abc import Callable
from typing import Final

#: Requests that may come at once even at low rates: those with which a device measures the link at first.
_LEAST_AT_ONCE: Final = 16


class RateLimit:
    """A limit on events a second, of which those of one second, or a few, may come at once (a token bucket).

    Args:
        rate: Events a second.
        share: The share of them that may be used.
        clock: Returns seconds.
    """

    def __init__(self, rate: float, share: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = share * rate
        self._most = share * max(_LEAST_AT_ONCE, rate)
        self._left = self._most
        self._clock = clock
        self._counted_at = clock()

    def spend(self, count: int = 1) -> bool:
        """Count some events; return False, and count none of them, if they are too many."""
        now = self._clock()
        self._left = min(self._most, self._left + self._rate * (now - self._counted_at))
        self._counted_at = now
        if self._left < count:
            return False
        self._left -= count
        return True
