"""A relay between a client and a server, which can cut their connections."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay:
    """A relay that listens on its own port.

    Args:
        address: `host:port` of the server.
        port: The port to listen on, such as that of a relay that was closed; 0 for a free one.
    """

    def __init__(self, address: str, port: int = 0) -> None:
        host, _, target = address.rpartition(":")
        self._server = (host, int(target))
        self._listening = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        self._left: int | None = None
        self._counting = threading.Lock()
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
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # otherwise, a waiting thread accepts one more
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
                if counted:
                    self._count(len(data))
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, sent: int) -> None:
        """Count bytes of the client, and cut all connections after the last one that may pass."""
        with self._counting:
            if self._left is None:
                return
            self._left -= sent
            if self._left > 0:
                return
            self._left = None
            self.cuts += 1
        self._cut()

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
