"""The sockets of connections, for ending connections that other threads wait for."""

import os
import socket
from contextlib import suppress
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, event
from sqlalchemy.pool import ConnectionPoolEntry


class Sockets:
    """The sockets of all open connections of engines.

    They are duplicates: libpq may close its own at any time, and its number may then belong to another file.
    """

    def __init__(self) -> None:
        self._open: WeakKeyDictionary[Any, socket.socket] = WeakKeyDictionary()
        self._changing = Lock()

    def collect(self, engine: Engine) -> None:
        """Collect the sockets of the connections that an engine makes from now on."""
        event.listen(engine, "connect", self._add)
        event.listen(engine, "close", self._remove)

    def shut_down(self) -> None:
        """End all connections: whoever waits for an answer gets an error."""
        with self._changing:
            for each in self._open.values():
                with suppress(OSError):  # it has ended
                    each.shutdown(socket.SHUT_RDWR)

    def _add(self, connection: Any, _entry: ConnectionPoolEntry) -> None:
        duplicate = socket.socket(fileno=os.dup(connection.fileno()))
        with self._changing:
            self._open[connection] = duplicate

    def _remove(self, connection: Any, _entry: ConnectionPoolEntry) -> None:
        with self._changing:
            duplicate = self._open.pop(connection, None)
        if duplicate is not None:
            duplicate.close()
