"""Serving of the web application in the server's event loop."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify.wire.listening import Certificate, checked_address
from mistify_server.file_descriptors import most_connections
from mistify_server.web.certificates import RenewedTls
from mistify_server.web.connections import Connections
from mistify_server.web.protocol import TimedProtocol

#: Maximum number of connections waiting to be accepted.
_BACKLOG = 1024

#: Grace period in seconds for running responses when the server stops; event streams would last longer.
_GRACE = 2


class _Server(uvicorn.Server):
    """A server that leaves signals to the enclosing program, and connections to `Connections`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self.started = True

    def protocol(self) -> TimedProtocol:
        """Return a protocol for a connection."""
        return TimedProtocol(self.config, self.server_state, {})


@asynccontextmanager
async def serve_http(
    app: FastAPI, address: str, *, certificate: Certificate | None = None, token: str | None = None
) -> AsyncIterator[str]:
    """Serve an application within the block, and yield its URL.

    Args:
        address: `host:port`; port 0 picks a free port.
        certificate: Certificate for TLS; None for a server without TLS.
        token: Secret that callers must send.

    Raises:
        MistifyError: ADDRESS_IN_USE, or the address cannot be bound or needs a token.
    """
    host, port = checked_address(address, token)
    with _bound(host, port) as listening:
        tls = None if certificate is None else RenewedTls(certificate)
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="error",  # anyone could fill the log with invalid requests
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE,
        )
        config.load()
        server = _Server(config)
        connections = Connections(listening, most_connections(), server.protocol, tls)
        accepting, serving = asyncio.create_task(connections.accept()), asyncio.create_task(server.serve())
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"{'https' if tls else 'http'}://{shown}:{listening.getsockname()[1]}/"
        finally:
            accepting.cancel()
            server.should_exit = True
            await serving
            await asyncio.wait([accepting])
            await connections.close()


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        code = ErrorCode.ADDRESS_IN_USE if error.errno == errno.EADDRINUSE else ErrorCode.UNAVAILABLE
        raise MistifyError(
            code,
            f"cannot listen for HTTP on {host}:{port}: {error.strerror}; stop the program that uses it or "
            "use another --http HOST:PORT (port 0 picks a free port, --http off disables HTTP)",
        ) from error
    with listening:
        # Connections inherit this option. Without it, the body of a response waits 40 ms for the
        # acknowledgement of its head; asyncio sets the option only for sockets that it creates.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setblocking(False)
        yield listening
