"""What the clients of all services have in common."""

from types import TracebackType
from typing import Self

from mistify_client.rpc.connection import Connection
from mistify_client.rpc.retry import Backoff


class ServiceClient:
    """A service of the server at one address. A context manager; it connects with the first call.

    Every method raises `MistifyError`: the server's own, or UNAVAILABLE where it cannot be reached.

    Args:
        address: `host:port` of the server.
        token: sent with every call as `authorization: Bearer TOKEN`.
        backoff: how patiently broken connections are tried again.
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
