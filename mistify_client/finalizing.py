"""Closing what an object has opened when nobody uses the object any more."""

import os
import weakref
from collections.abc import Callable


def close_with(owner: object, close: Callable[[], object]) -> None:
    """Call a function when an object is collected, and at the latest when this process exits.

    A process that was forked from this one does not call it: it would wait for threads that exist only here.
    """
    weakref.finalize(owner, _close_in, os.getpid(), close)


def _close_in(process: int, close: Callable[[], object]) -> None:
    if os.getpid() == process:
        close()
