"""What a helper grants other devices at most."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mistify.errors import ErrorCode, MistifyError
from mistify_client.lending.worker import WorkerLimits


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
