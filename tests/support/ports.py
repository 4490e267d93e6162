"""Ports of servers that are stopped and started again."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_address() -> Iterator[str]:
    """Yield an address that no other program gets within the block, also while no server is there.

    Servers share it with the reservation, by the option SO_REUSEPORT.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
        yield "{}:{}".format(*reservation.getsockname())
