"""The connections of a listening socket, up to a maximum number."""

import asyncio
import heapq
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from typing import Final

from mistify_server.web.protocol import HEAD_SECONDS, TimedProtocol

#: Seconds until connections are accepted again after the system has refused one.
_RETRY_SECONDS: Final = 1.0

#: Maximum share of the connections to close at once when there are too many: each search for the oldest idle
#: ones takes time.
_CLOSED_AT_ONCE: Final = 1 / 16

_log = logging.getLogger(__name__)


class Connections:
    """Accepts connections, and closes the oldest idle ones if there is no room for a new one.

    asyncio's own servers accept connections until no file descriptor is left for anything.

    Args:
        listening: A listening, non-blocking socket.
        most: Maximum number of connections; others wait in the socket's backlog while none is idle.
        protocol: Creates the protocol for a connection.
        tls: Returns the TLS settings for a new connection; None for connections without TLS.
    """

    def __init__(
        self,
        listening: socket.socket,
        most: int,
        protocol: Callable[[], TimedProtocol],
        tls: Callable[[], SSLContext] | None,
    ) -> None:
        self._listening = listening
        self._most = most
        self._protocol = protocol
        self._tls = tls
        self._open: dict[asyncio.Task[None], TimedProtocol] = {}
        self._one_closed = asyncio.Event()

    async def accept(self) -> None:
        """Accept connections until cancelled; open connections continue."""
        while True:
            try:
                await self._make_room()
                self._begin(await self._accepted())
            except Exception:  # or else, nobody would accept any others
                _log.exception("a connection could not be accepted because of an internal error")
                await asyncio.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Close all open connections."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accepted(self) -> socket.socket:
        """Return the next connection; refusals by the system are logged once until one is accepted again."""
        refused = False
        while True:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(self._listening)
            except ConnectionError:
                continue  # the caller disconnected first
            except OSError as error:
                if not refused:
                    _log.warning("connections are waiting because none can be accepted: %s", error.strerror)
                refused = True
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return connection

    def _begin(self, connection: socket.socket) -> None:
        try:
            protocol = self._protocol()
        except BaseException:
            connection.close()
            raise
        task = asyncio.create_task(self._serve(connection, protocol))
        self._open[task] = protocol
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        self._one_closed.set()

    async def _serve(self, connection: socket.socket, protocol: TimedProtocol) -> None:
        """Serve a connection until it is lost; failed handshakes are ignored."""
        loop = asyncio.get_running_loop()
        try:
            with suppress(OSError):
                await loop.connect_accepted_socket(
                    lambda: protocol,
                    connection,
                    ssl=self._tls and self._tls(),
                    ssl_handshake_timeout=HEAD_SECONDS if self._tls else None,
                )
                await protocol.lost
        finally:
            if protocol.transport is not None:
                protocol.transport.abort()

    async def _make_room(self) -> None:
        """Wait until there is room for a connection, closing idle ones."""
        while len(self._open) >= self._most:
            self._one_closed.clear()
            idle = {task: since for task, of in self._open.items() if (since := of.idle_since) is not None}
            for task in heapq.nsmallest(1 + int(self._most * _CLOSED_AT_ONCE), idle, key=idle.__getitem__):
                task.cancel()
            await self._one_closed.wait()
