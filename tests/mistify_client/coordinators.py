"""A real coordinator in a thread, and a proxy that breaks connections to it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mistify_server.server import ServerSettings, running_server


@contextmanager
def running(store: Path, listen: str = "127.0.0.1:0", token: str | None = None) -> Iterator[str]:
    """Run a server with a store, and yield its address."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    address: list[str] = []

    async def serve() -> None:
        settings = ServerSettings(store=store, listen=listen, token=token, worker=["false"])
        async with running_server(settings) as (bound, _):
            address.append(bound)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@dataclass
class BreakingProxy:
    """A proxy to a server; each connection except the last stalls after a number of response bytes.

    A stalled connection breaks off once `break_off` is set.
    """

    target: str
    limits: list[int] = field(default_factory=list)
    connections: int = 0
    break_off: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
            try:
                yield f"127.0.0.1:{listener.getsockname()[1]}"
            finally:
                listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.connections += 1
                host, _, port = self.target.rpartition(":")
                server = socket.create_connection((host, int(port)))
                limit = self.limits.pop(0) if self.limits else 2**62
                for source, sink, most in ((client, server, 2**62), (server, client, limit)):
                    threading.Thread(target=self._pass, args=(source, sink, most), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, most: int) -> None:
        with suppress(OSError):
            while most > 0 and (data := source.recv(min(most, 4096))):
                sink.sendall(data)
                most -= len(data)
        if most <= 0:
            self.break_off.wait()
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
