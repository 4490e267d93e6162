"""Threads that meet at a chosen step of a function."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any


@contextmanager
def before_line(function: FunctionType, number: int, act: Callable[[], object]) -> Iterator[None]:
    """Let something happen before a line of a function runs, as if another thread did it.

    Args:
        function: Is called by the block, in this thread.
        number: Of the line, among those that run, from 0; of more lines than run, nothing happens.
        act: What happens.
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
