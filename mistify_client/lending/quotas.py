"""What a helper grants other devices at most."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify_client.lending.worker import WorkerLimits

#: Requests that may come at once even at low rates: those with which a device measures the link at first.
_LEAST_AT_ONCE: Final = 16


@dataclass(frozen=True)
class Quotas:
    """Limits on the devices that a helper helps.

    Attributes:
        clients: Devices at a time.
        rate: Inferences a second for each device.
        worker: Limits of the process that runs a device's blocks.
    """

    clients: int
    rate: float
    worker: WorkerLimits


class Places:
    """The places for devices; used by several threads."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = threading.Semaphore(count)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take a place during the block.

        Raises:
            MistifyError: NO_ROOM, none is free.
        """
        if not self._free.acquire(blocking=False):
            message = f"this helper already helps {self._count} devices; start it with more --clients"
            raise MistifyError(ErrorCode.NO_ROOM, message)
        try:
            yield
        finally:
            self._free.release()


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

    def allows(self) -> bool:
        """Count an event; return False, and do not count it, if there have been too many."""
        now = self._clock()
        self._left = min(self._most, self._left + self._rate * (now - self._counted_at))
        self._counted_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
