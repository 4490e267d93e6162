"""The time of a message to a helper and its answer, beyond that of as many bytes over bare TCP."""

import socket
import threading
from statistics import median
from time import perf_counter
from typing import Final

from mistify_client.lending.helper import serving
from mistify_client.lending.packages import LentPackages
from mistify_client.lending.quotas import Quotas
from mistify_client.lending.streams import HelperStream
from mistify_client.lending.worker import WorkerLimits

BYTES: Final = 50_000
_MESSAGES: Final = 400
_SECONDS: Final = 10.0


def overhead_ms() -> float:
    """Return the milliseconds, a median, with messages in turns."""
    quotas = Quotas(1, 1e9, WorkerLimits(1, 1))
    with (
        serving(LentPackages([]), quotas, "127.0.0.1:0") as address,
        socket.create_server(("127.0.0.1", 0)) as bare,
    ):
        threading.Thread(target=_echo, args=[bare], daemon=True).start()
        stream = HelperStream(address, None, None)
        with socket.create_connection(bare.getsockname()) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pairs = [(_lent(stream), _bare(connection)) for _ in range(_MESSAGES)]
        stream.close()
    lent, over_tcp = zip(*pairs, strict=True)
    return 1e3 * float(median(lent) - median(over_tcp))


def _lent(stream: HelperStream) -> float:
    started = perf_counter()
    stream.probe(BYTES, _SECONDS)
    return perf_counter() - started


def _bare(connection: socket.socket) -> float:
    started = perf_counter()
    connection.sendall(bytes(BYTES))
    connection.recv(1)
    return perf_counter() - started


def _echo(server: socket.socket) -> None:
    """Answer every message with a byte."""
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    missing = BYTES
    while part := connection.recv(min(missing, 65536)):
        missing -= len(part)
        if not missing:
            connection.sendall(b"1")
            missing = BYTES
