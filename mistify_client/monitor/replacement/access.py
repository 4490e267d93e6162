"""The server as the monitor's threads reach it: patiently, and so that they can be ended at any moment."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from mistify.errors import ErrorCode, MistifyError
from mistify_client.files import read_token
from mistify_client.monitor.config import ServerConfig
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.retry import Backoff

Client = TypeVar("Client", bound=ServiceClient)

#: Failures that pass by themselves, or once somebody mends the token.
_PASSING: Final = (ErrorCode.UNAVAILABLE, ErrorCode.ADDRESS_IN_USE, ErrorCode.UNAUTHENTICATED)

#: Between the attempts of what has no end.
RETRY: Final = Backoff(first=1.0, longest=300.0)
_ONE_ATTEMPT: Final = Backoff(attempts=0)


def passes(error: Exception) -> bool:
    """Whether another attempt may succeed."""
    return isinstance(error, OSError) or (isinstance(error, MistifyError) and error.code in _PASSING)


class ServerAccess(Generic[Client]):
    """Connections for one thread at a time, which another one can break off for good.

    Args:
        settings: where the server is.
        client: of one of its services.
        retry: how long to wait after a failure.
    """

    def __init__(self, settings: ServerConfig, client: type[Client], retry: Backoff = RETRY) -> None:
        self._settings = settings
        self._make = client
        self._retry = retry
        self._stopping = threading.Event()
        self._client: Client | None = None

    @property
    def stopped(self) -> bool:
        """Whether nothing is to be begun any more."""
        return self._stopping.is_set()

    @contextmanager
    def connected(self) -> Iterator[Client]:
        """A client that does not wait for a server that is away.

        Raises:
            MistifyError: UNAUTHENTICATED, there is no token to read, as while another one takes its place.
        """
        with self._make(self._settings.server, self._token(), backoff=_ONE_ATTEMPT) as client:
            self._client = client
            if self.stopped:  # then `stop` may have come too early to close this one
                client.close()
            try:
                yield client
            finally:
                self._client = None

    def _token(self) -> str | None:
        try:
            return read_token(self._settings.token_file)
        except MistifyError as error:
            message = "the token cannot be read"
            raise MistifyError(ErrorCode.UNAUTHENTICATED, message, error.problems) from error

    def wait(self, failures: int) -> None:
        """Wait after so many failures in a row, until `stop` at the most."""
        self._stopping.wait(self._retry.delay(failures))

    def stop(self) -> None:
        """Break off what is being done, and whatever is begun after it."""
        self._stopping.set()
        if self._client is not None:
            self._client.close()
