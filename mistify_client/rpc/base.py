"""The base class for the clients of all services."""

from types import TracebackType
from typing import Self

from mistify_client.rpc.connection import Connection
from mistify_client.rpc.retry import Backoff


class ServiceClient:
    """A client of one service of a server; a context manager that connects on the first call.

    Every method raises `MistifyError`: the server's error, or UNAVAILABLE if the server is unreachable.

    Args:
        address: `host:port` of the server, or `tls://host:port`.
        token: Sent with every call as `authorization: Bearer TOKEN`.
        backoff: The delays between attempts after connection failures, and the number of attempts.

    Raises:
        MistifyError: INVALID_CONFIG, it is not an address.
    """

    def __init__(self, address: str, token: str | None = None, *, backoff: Backoff | None = None) -> None:
        self._connection = Connection(address, token)
        self._backoff = backoff or Backoff()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
