"""Worker processes on this machine."""

import asyncio
import errno
import hashlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import rmtree

from typing_extensions import override

from mistify_server.engines.supervision import (
    MAX_LINE,
    NoRoomForWorker,
    WorkerConnection,
    WorkerCrashed,
    WorkerDied,
    WorkerNotStarted,
)

#: Error codes of a machine that temporarily has no room for another process.
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)

#: By how much workers give way to the server, which answers calls while all processors train: a third of its
#: share of a processor.
_NICE = 5
_LEAST_PRIORITY = 19

_MAX_LOG = 2**20
_EXIT_SECONDS = 5.0
_SHOWN_LINES = 5
_SHOWN_BYTES = 4096


class WorkerProcess(WorkerConnection):
    """A child process that runs one task at a time (`mistify_server.tasks.tasks`).

    It has its own process group, so that it can be killed together with its children. When this process ends
    in any way, the child's standard input closes, and it exits. This process removes the child's directory of
    temporary files, because a killed process cannot.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        log: Path,
        log_start: int,
        *,
        scratch: Path,
    ) -> None:
        self._process = process
        self._stdin = stdin
        self._stdout = stdout
        self._log = log
        self._log_start = log_start
        self._scratch = scratch
        self._asked = False

    @classmethod
    async def start(
        cls, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> "WorkerProcess":
        """Start a worker.

        Args:
            command: Program and arguments of the worker.
            log: The file to which its standard error is appended; running workers must not share one.
            environment: Environment variables to set in addition to those of this process.

        Raises:
            WorkerNotStarted: The worker cannot be started; `NoRoomForWorker` if this is temporary.
        """
        try:
            _truncate(log)
            with log.open("ab") as errors, ExitStack() as undo:
                scratch = await asyncio.to_thread(_fresh_scratch, log)
                undo.callback(rmtree, scratch, ignore_errors=True)
                log_start = errors.tell()
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    limit=MAX_LINE,
                    start_new_session=True,
                    env={**os.environ, **(environment or {}), "TMPDIR": str(scratch)},
                )
                _lower_priority(process.pid)
                undo.pop_all()
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise NoRoomForWorker(f"the worker could not be started: {error.strerror}") from error
            raise WorkerNotStarted(f"the worker could not be started: {error}") from error
        if process.stdin is None or process.stdout is None:
            raise WorkerDied("the worker has no pipes")
        return cls(process, process.stdin, process.stdout, log, log_start, scratch=scratch)

    @override
    async def alive(self) -> bool:
        try:  # the event loop may not have noticed its end yet
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return ended is None and self._process.returncode is None and not self._stdout.at_eof()

    @override
    async def send(self, line: bytes) -> None:
        if self._asked:  # log lines about its start belong to the first task
            self._log_start = _size(self._log)
        self._asked = True
        with suppress(ConnectionError):  # it has ended; the next read reports this
            self._stdin.write(line)
            await self._stdin.drain()

    @override
    async def receive(self) -> bytes:
        try:
            line = await self._stdout.readline()
        except ValueError as error:
            raise WorkerDied(f"the worker wrote a line of more than {MAX_LINE:,} bytes") from error
        if not line:
            raise WorkerCrashed(await self._exit_code())
        return line

    @override
    async def log_tail(self) -> str:
        return _tail(self._log, self._log_start)

    @override
    async def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await asyncio.to_thread(rmtree, self._scratch, ignore_errors=True)

    async def _exit_code(self) -> int | None:
        """Return the exit code of a worker that has closed its output."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _EXIT_SECONDS)
        await self.kill()
        return self._process.returncode


def _lower_priority(group: int) -> None:
    """Let a process group, which is a session as well, give way to the processes of this one's priority."""
    nice = min(_LEAST_PRIORITY, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
    with suppress(OSError):  # it has already ended
        os.setpriority(os.PRIO_PGRP, group, nice)
    with suppress(OSError):  # the kernel does not group sessions
        # Otherwise, sessions would have equal shares of a processor, whatever the priorities in each.
        Path(f"/proc/{group}/autogroup").write_text(str(nice))


def _fresh_scratch(log: Path) -> Path:
    """Create a directory for a worker's temporary files, replacing one left by a killed server."""
    remove_scratch(log)
    return Path(tempfile.mkdtemp(prefix=_scratch_prefix(log)))


def remove_scratch(log: Path) -> None:
    """Remove the temporary files that a killed server has left of the worker with this log."""
    for left in Path(tempfile.gettempdir()).glob(f"{_scratch_prefix(log)}*"):
        rmtree(left, ignore_errors=True)


def _scratch_prefix(log: Path) -> str:
    return f"mistify-worker-{hashlib.sha256(os.fsencode(log.absolute())).hexdigest()[:16]}-"


def _truncate(log: Path) -> None:
    """Truncate a long log to its end, unless there is no room to rewrite it."""
    if _size(log) <= _MAX_LOG:
        return
    with log.open("rb") as file:
        file.seek(-_MAX_LOG // 2, os.SEEK_END)
        kept = file.read()
    shorter = log.with_suffix(".shorter")
    try:
        shorter.write_bytes(kept)
        shorter.replace(log)
    except OSError:
        shorter.unlink(missing_ok=True)


def _tail(log: Path, start: int) -> str:
    """Return the last lines of a log after position `start`; empty if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, _size(log) - _SHOWN_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_SHOWN_LINES:])


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
