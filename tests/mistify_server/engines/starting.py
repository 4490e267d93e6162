"""Starting Ray, whose machines fail to start now and then, the more so the busier this one is."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Started = TypeVar("Started")


def patiently(start: Callable[[], Started]) -> Started:
    """What is started, at the third attempt at the latest; `start` leaves nothing behind when it fails."""
    for _ in range(2):
        with suppress(Exception):
            return start()
    return start()
