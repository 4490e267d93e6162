"""Notifications of PostgreSQL, by which servers learn of each other's changes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

#: The channel of all servers of a database.
CHANNEL: Final = "mistify"

#: Seconds after which the end of the block is noticed, and after which a lost connection is made again.
_LOOK_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class Listener:
    """A thread that receives notifications on a connection of its own, which it makes again when it is lost.

    Args:
        engine: Makes connections.
        on_text: Called with each text, and with an empty one after each connection: some may be missing.
    """

    def __init__(self, engine: Engine, on_text: Callable[[str], None]) -> None:
        self._engine = engine
        self._on_text = on_text
        self._ended = Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive notifications within the block."""
        thread = Thread(target=self._run, name="database-notifications", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        import psycopg  # noqa: PLC0415 (optional)

        while not self._ended.is_set():
            try:
                self._receive()
            except (DBAPIError, psycopg.Error):  # the log of the server's lock says so
                self._ended.wait(_RETRY_SECONDS)
            except Exception:  # or else nobody would receive what comes later
                _log.exception("the changes of other servers are missed because of an internal error")
                self._ended.wait(_RETRY_SECONDS)

    def _receive(self) -> None:
        engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            self._on_text("")
            received: Any = connection.connection.driver_connection
            while not self._ended.is_set():
                for notification in received.notifies(timeout=_LOOK_SECONDS, stop_after=100):
                    self._on_text(notification.payload)
