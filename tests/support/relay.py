"""A relay between a client and a server, which can cut their connections."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay:
    """A relay that listens on its own port.

    Args:
        address: `host:port` of the server.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._server = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._left: int | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Return `host:port` for the client."""
        return "{}:{}".format(*self._listening.getsockname())

    def cut_after(self, count: int) -> None:
        """Cut all connections after the client has sent this many more bytes."""
        self._left = count

    def close(self) -> None:
        """Accept no more connections, and cut all."""
        self._listening.close()
        self._cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server)
                self._open += [client, server]
                for source, target, counted in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._pass_on, args=(source, target, counted), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                if counted and self._left is not None:
                    self._left -= len(data)
                    if self._left <= 0:
                        self._left = None
                        self.cuts += 1
                        self._cut()
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _cut(self) -> None:
        opened, self._open = self._open, []
        for end in opened:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def relay(address: str) -> Iterator[Relay]:
    """Run a relay to a server in the block."""
    made = Relay(address)
    try:
        yield made
    finally:
        made.close()
