"""Memory that the server has freed goes back to the operating system."""

import asyncio
import ctypes
from collections.abc import Awaitable, Callable
from typing import Final

#: Seconds between two returns of memory: each takes some milliseconds, during which others cannot get any.
_SECONDS: Final = 30.0


async def keep_trimmed(sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
    """Return freed memory periodically, where the C library can (glibc).

    By itself, it returns only what is above everything in use. Thousands of connections that come and go
    leave hundreds of megabytes below, of which those that stay need little.

    Args:
        sleep: Waits for a number of seconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await sleep(_SECONDS)
        await asyncio.to_thread(trim, 0)
