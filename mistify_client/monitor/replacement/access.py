"""Access to the server for the monitor's threads, with retries and cancellable calls."""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from mistify.errors import ErrorCode, MistifyError
from mistify.tokens import read_token
from mistify.wording import counted
from mistify_client.monitor.config import ServerConfig
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.retry import Backoff

Client = TypeVar("Client", bound=ServiceClient)

#: Failures that may be temporary, or end when the token, or the server's access to its store, is corrected.
_PASSING: Final = (
    ErrorCode.UNAVAILABLE,
    ErrorCode.STORE_REFUSED,
    ErrorCode.ADDRESS_IN_USE,
    ErrorCode.UNAUTHENTICATED,
    ErrorCode.PERMISSION_DENIED,
)

#: Errors of a machine that has run out of disk space, file descriptors or memory, or limits files.
_EXHAUSTED: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)

#: Attempts, in more than an hour, after which other errors of reading and writing count as permanent.
MOST_ATTEMPTS: Final = 20

#: Delays in seconds between attempts.
RETRY: Final = Backoff(first=1.0, longest=300.0)
_ONE_ATTEMPT: Final = Backoff(attempts=0)


def passes(error: Exception, failures: int = 0) -> bool:
    """Return True if another attempt may succeed.

    Args:
        failures: The number of consecutive failures before.
    """
    return tells_nothing(error) or (isinstance(error, OSError) and failures + 1 < MOST_ATTEMPTS)


def tells_nothing(error: Exception) -> bool:
    """Return True if an attempt failed for a reason that passes, and that is not the package's.

    The server is away, or others have taken the disk space, the file descriptors or the memory. Other errors
    of reading and writing may come back forever.
    """
    if isinstance(error, MistifyError):
        return error.code in _PASSING
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def permanent(error: Exception, failures: int) -> str:
    """Return why a step is given up, for people.

    Args:
        failures: The number of consecutive failures before.
    """
    kind = "" if isinstance(error, MistifyError) else f"{type(error).__name__}: "
    attempts = f", after {counted(failures + 1, 'attempt')}" if failures else ""
    return f"{kind}{error}{attempts}"


class ServerAccess(Generic[Client]):
    """Connections to the server for one thread, which another thread can close permanently.

    Args:
        settings: Address and token of the server.
        client: Client class of the service to connect to.
        retry: The delay after a failure.
    """

    def __init__(self, settings: ServerConfig, client: type[Client], retry: Backoff = RETRY) -> None:
        self._settings = settings
        self._make = client
        self._retry = retry
        self._stopping = threading.Event()
        self._client: Client | None = None

    @property
    def stopped(self) -> bool:
        """True after `stop`: no new work may begin."""
        return self._stopping.is_set()

    @contextmanager
    def connected(self) -> Iterator[Client]:
        """Yield a client whose calls fail immediately if the server is unreachable.

        Raises:
            MistifyError: UNAUTHENTICATED, the token cannot be read, for example while it is being replaced.
        """
        with self._make(self._settings.server, self._token(), backoff=_ONE_ATTEMPT) as client:
            self._client = client
            if self.stopped:  # `stop` may have been called before this client was visible to it
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
        """Wait before the next attempt, at most until `stop`.

        Args:
            failures: The number of consecutive failures.
        """
        self._stopping.wait(self._retry.delay(failures))

    def repeat(self, attempt: Callable[[], bool]) -> None:
        """Call a function until it returns True or `stop` is called, waiting longer after each failure."""
        failures = 0
        while not self.stopped and not attempt():
            failures += 1
            self.wait(failures)

    def stop(self) -> None:
        """Cancel the current call and all later ones."""
        self._stopping.set()
        client = self._client  # the thread may clear the attribute at any time
        if client is not None:
            client.close()
