"""The signals that the daemon handles between two steps."""

import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: The signals that the daemon handles: SIGHUP reloads the config, the others end it.
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

#: Waits for a signal for at most the given seconds, and returns it; None if none came.
SignalWaiter = Callable[[float], signal.Signals | None]


@contextmanager
def signal_waiter() -> Iterator[SignalWaiter]:
    """Yield a function that waits for signals; while it exists, signals do not interrupt other work.

    Only for the main thread.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def wait(seconds: float) -> signal.Signals | None:
        ready, _, _ = select.select([reader], [], [], seconds)
        return signal.Signals(reader.recv(1)[0]) if ready else None

    with reader, writer:
        # Python writes a signal's number to the socket only if the signal has a handler.
        before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        earlier = signal.set_wakeup_fd(writer.fileno())
        try:
            yield wait
        finally:
            signal.set_wakeup_fd(earlier)
            for number, handler in before.items():
                signal.signal(number, handler)
