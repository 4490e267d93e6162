"""Starting Ray, whose nodes occasionally fail to start, especially on a busy machine."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Started = TypeVar("Started")


def patiently(start: Callable[[], Started]) -> Started:
    """Call `start` up to three times until it succeeds; a failed call has to clean up after itself."""
    for _ in range(2):
        with suppress(Exception):
            return start()
    return start()
