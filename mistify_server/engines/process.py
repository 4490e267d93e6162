"""One worker process: started, asked, killed."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from mistify_server.engines.base import OnProgress
from mistify_server.tasks import ANSWER, Progress, Result, Task

#: The longest line that a worker may write, in bytes.
MAX_LINE = 4 * 2**20
_MAX_LOG = 2**20
_EXIT_SECONDS = 5.0
_SHOWN_LINES = 5
_SHOWN_BYTES = 4096


class WorkerDied(Exception):  # noqa: N818 (what happened; the next attempt may well succeed)
    """A worker ended, or talked nonsense, before it had answered; says what is known about it."""


class WorkerProcess:
    """A child process that does one task after the other (`mistify_server.tasks`).

    It has a process group of its own, so that it ends together with what it has started, and its
    standard input closes when this process ends, however that happens: it then ends itself.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, command: Sequence[str], log: Path) -> "WorkerProcess":
        """Start a worker, with its standard error appended to a log file."""
        _truncate(log)
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=MAX_LINE,
                start_new_session=True,
            )
        return cls(process, log)

    @property
    def running(self) -> bool:
        """Whether it can be asked."""
        return self._process.returncode is None

    async def ask(self, task: Task, on_progress: OnProgress) -> Result:
        """The answer to a task.

        Raises:
            WorkerDied: it did not come to an answer. The worker must then be killed.
        """
        log_start = self._log.stat().st_size
        try:
            return await self._converse(task, on_progress)
        except WorkerDied as error:
            last_words = _tail(self._log, log_start)
            raise WorkerDied(f"{error}\n{last_words}" if last_words else str(error)) from error

    async def kill(self) -> None:
        """End the process and all that it has started."""
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _converse(self, task: Task, on_progress: OnProgress) -> Result:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise WorkerDied("the worker has no pipes")
        with suppress(ConnectionError):  # it has ended; reading says so
            stdin.write(task.model_dump_json().encode() + b"\n")
            await stdin.drain()
        while True:
            try:
                line = await stdout.readline()
            except ValueError as error:
                raise WorkerDied(f"the worker wrote a line of more than {MAX_LINE:,} bytes") from error
            if not line:
                raise WorkerDied(await self._death())
            try:
                answer = ANSWER.validate_json(line)
            except ValidationError as error:
                raise WorkerDied(f"the worker wrote a line that is no answer: {line[:80]!r}") from error
            if not isinstance(answer, Progress):
                return answer
            on_progress(answer)

    async def _death(self) -> str:
        """How a worker ended that has closed its output."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _EXIT_SECONDS)
        await self.kill()
        code = self._process.returncode
        if code is not None and code < 0:
            return f"the worker was ended by signal {signal.Signals(-code).name}"
        return f"the worker ended with exit code {code}"


def _truncate(log: Path) -> None:
    """Keep the end of a log that has grown long."""
    if not log.exists() or log.stat().st_size <= _MAX_LOG:
        return
    with log.open("rb") as file:
        file.seek(-_MAX_LOG // 2, os.SEEK_END)
        kept = file.read()
    with tempfile.NamedTemporaryFile(dir=log.parent, delete=False) as shorter:
        shorter.write(kept)
    os.replace(shorter.name, log)


def _tail(log: Path, start: int) -> str:
    """The last lines of a log, of those written from `start` on."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _SHOWN_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-_SHOWN_LINES:])
