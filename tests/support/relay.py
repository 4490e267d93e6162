"""A relay between a client and a server, which can cut their connections, and hold what they send."""

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
        self._left: list[int] = []
        self._both_ways = False
        self._counting = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        #: Set when something was sent while the relay held it.
        self.holds = threading.Event()
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Return `host:port` for the client."""
        return "{}:{}".format(*self._listening.getsockname())

    def cut_after(self, *counts: int, both_ways: bool = False) -> None:
        """Cut all connections after the client has sent this many more bytes, and after each further count.

        Args:
            both_ways: Count the bytes of both client and server.
        """
        self._left, self._both_ways = [*counts], both_ways

    def lead_to(self, address: str) -> None:
        """Pass later connections on to another server."""
        host, _, target = address.rpartition(":")
        self._server = (host, int(target))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Pass nothing on within the block; connections stay open."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

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
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # there is no server now
                    client.close()
                    continue
                self._open += [client, server]
                for source, target, is_client in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._pass_on, args=(source, target, is_client), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._flowing.is_set():
                    self.holds.set()
                    self._flowing.wait()
                passing = self._passing(len(data), is_client)
                target.sendall(data[:passing])
                if passing < len(data):
                    self._cut()
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _passing(self, size: int, is_client: bool) -> int:
        """Return how many bytes may pass; all connections are cut after fewer than there are."""
        with self._counting:
            if not self._left or not (is_client or self._both_ways):
                return size
            if size < self._left[0]:
                self._left[0] -= size
                return size
            self.cuts += 1
            return min(self._left.pop(0), size - 1)

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
