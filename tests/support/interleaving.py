"""Deterministic interleaving of a function with another thread's action."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any


@contextmanager
def before_line(function: FunctionType, number: int, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` before a given line of a function runs, as if another thread did it.

    Args:
        function: The function to interrupt, which the block calls in this thread.
        number: Index of the executed line, from 0. If fewer lines run, `act` is not called.
        act: The other thread's action.
    """
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code is not function.__code__:
            return None
        if event == "line":
            if not left:
                act()
            left -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
