"""A disposable process for calls that may crash their process."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, TypeVar

from mistify.isolation.calls import Call, Raised, Report, Returned

T = TypeVar("T")


class ProcessEndedError(Exception):
    """A call ended its process; the message says how."""


class DisposableProcess:
    """Runs calls in a separate process, one at a time, so that a crash does not affect the caller.

    The process starts with the first call, or ahead of it with `start`. It imports only the modules of the
    called functions, is reused for later calls, and ends with this process. After a call that crashed or
    raised an exception, the next call gets a new process: failed native code may have left the old one in a
    bad state.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._started: tuple[subprocess.Popen[bytes], Connection] | None = None

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of a function that runs in the process.

        Args:
            function: A function at the top level of a module that the process can import.
            *arguments: Picklable values; the result must be picklable as well.

        Raises:
            ProcessEndedError: The function ended the process.
            MemoryError: The operating system killed the process, probably because memory ran out.
            Exception: Whatever the function raised.
        """
        result: T = self._called(Call(function, arguments, reports=False), lambda content: None)
        return result

    def call_reporting(
        self, function: Callable[..., T], *arguments: object, on_report: Callable[[Any], object]
    ) -> T:
        """Return the result of a function that takes a callback as its last argument.

        Args:
            function: A function as for `call`, which lists the exceptions.
            *arguments: All arguments except the callback.
            on_report: Called in this process with each report of the function.
        """
        result: T = self._called(Call(function, arguments, reports=True), on_report)
        return result

    def start(self) -> None:
        """Start the process unless it runs already, so that the next call need not wait for it."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the process; a later call starts a new one."""
        with self._lock:
            self._end()

    def _called(self, call: Call, on_report: Callable[[Any], object]) -> Any:
        with self._lock:
            try:
                answer = self._answer(call, on_report)
            except BaseException:
                self._end()
                raise
            if isinstance(answer, Raised):
                self._end()
                raise answer.error
            return answer.result

    def _answer(self, call: Call, on_report: Callable[[Any], object]) -> Returned | Raised:
        process, connection = self._running()
        try:
            connection.send(call)
            while isinstance(message := connection.recv(), Report):
                on_report(message.content)
        except (EOFError, ConnectionError) as error:
            raise _ended(process.wait()) from error
        answer: Returned | Raised = message
        return answer

    def _running(self) -> tuple[subprocess.Popen[bytes], Connection]:
        self._started = self._started or _start()
        return self._started

    def _end(self) -> None:
        if self._started is not None:
            process, connection = self._started
            self._started = None
            connection.close()
            process.kill()
            process.wait()


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    own, other = socket.socketpair()
    with own, other:
        command = [sys.executable, "-m", "mistify.isolation", str(other.fileno())]
        process = subprocess.Popen(  # noqa: S603 (Mistify itself)
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[other.fileno()]
        )
        return process, Connection(own.detach())


def _ended(code: int) -> ProcessEndedError | MemoryError:
    """Return the exception for an exit code of the process; negative codes are signals."""
    if code == -signal.SIGKILL:
        return MemoryError("its process was killed, probably because memory ran out")
    how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return ProcessEndedError(f"its process ended {how}")
