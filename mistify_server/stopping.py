"""When a server stops: on SIGTERM, on Ctrl-C, or when the program that started it ends."""

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress


def stop_requested(*, with_stdin: bool = False) -> asyncio.Event:
    """Return an event of the running event loop that is set when the server is to stop.

    Args:
        with_stdin: Stop also when standard input is closed, or cannot be read.
    """
    requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, requested.set)

    def watch_stdin() -> None:
        with suppress(OSError):  # a terminal that was closed
            while os.read(sys.stdin.fileno(), 1024):
                pass
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(requested.set)

    if with_stdin:
        threading.Thread(target=watch_stdin, name="stdin", daemon=True).start()
    return requested
