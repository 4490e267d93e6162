"""Supervision of one worker: its tasks, valid answers, and the lease after which it is given up."""

import asyncio
import itertools
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TypeVar

from pydantic import ValidationError

from mistify.errors import ErrorCode
from mistify_server.tasks.messages import WORKER_MESSAGE, Answer, Heartbeat, OnProgress, Order, WorkerMessage
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.tasks.results import AdaptResult, Result, SourceResult
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    InspectTask,
    PackageTask,
    ReferenceTask,
    SourceTask,
    Task,
)
from mistify_server.tracing.context import TraceContext, current_traceparent

T = TypeVar("T")

#: Maximum length of a line from a worker, in bytes.
MAX_LINE = 4 * 2**20

#: Seconds within which a worker must answer a request that needs no work.
_REPLY_SECONDS = 30.0


class WorkerDied(Exception):  # noqa: N818 (an event rather than an error: the next attempt may succeed)
    """A worker ended, stopped responding or wrote an invalid line; the message has the reason.

    Attributes:
        code: The error code of the task if no attempt succeeds.
        log_tail: End of the log during the task, for the server's operator.
    """

    code = ErrorCode.INTERNAL
    log_tail = ""


class WorkerCrashed(WorkerDied):
    """The worker's process crashed or was killed by the system.

    Args:
        exit_code: Exit code of the process, or the negative number of the signal that ended it; None if
            unknown.
    """

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        if exit_code is not None and exit_code < 0:
            super().__init__(f"the worker was killed by signal {signal.Signals(-exit_code).name}")
        else:
            super().__init__(f"the worker ended with exit code {exit_code}")


class WorkerNotStarted(WorkerDied):
    """The worker's process could not be started, for reasons unrelated to the task."""

    code = ErrorCode.UNAVAILABLE


class NoRoomForWorker(WorkerNotStarted):
    """The machine temporarily lacks a resource for another process, such as file descriptors."""


class WorkerConnection(ABC):
    """Connection to a local or remote worker process, which reads and writes lines.

    Raises:
        WorkerDied: The worker is no longer reachable; raised by every method except `alive` and `kill`.
    """

    @abstractmethod
    async def alive(self) -> bool:
        """Check whether the process is running and reachable."""

    @abstractmethod
    async def send(self, line: bytes) -> None:
        """Write a line to the process."""

    @abstractmethod
    async def receive(self) -> bytes:
        """Return the next line from the process."""

    @abstractmethod
    async def log_tail(self) -> str:
        """Return the end of the process's log since the last line was sent, or since its start."""

    @abstractmethod
    async def kill(self) -> None:
        """Kill the process and its child processes, as far as they are reachable."""


class SupervisedWorker:
    """A worker that runs one task at a time.

    Every attempt has a ticket, and only answers with the current ticket are valid: late answers to abandoned
    attempts are rejected.

    Args:
        name: Name of the worker's log.
    """

    #: Unique for all attempts in this process.
    _tickets = itertools.count(1)

    def __init__(self, connection: WorkerConnection, name: str) -> None:
        self._connection = connection
        self.name = name
        self.warm: frozenset[str] = frozenset()

    async def alive(self) -> bool:
        """Check whether the worker can run a task."""
        try:
            return await _with_timeout(self._connection.alive(), _REPLY_SECONDS)
        except WorkerDied:
            return False

    async def ask(self, task: Task, on_progress: OnProgress, lease: float) -> Answer:
        """Return the answer to a task.

        Args:
            on_progress: Receives the task's progress.
            lease: Seconds without any line, including heartbeats, after which the worker is given up.

        Raises:
            WorkerDied: The worker did not answer. It must then be killed.
        """
        try:
            answer = await self._converse(task, on_progress, lease)
        except WorkerDied as error:
            error.log_tail = await self._log_tail()
            raise
        self.warm = needed(task) | made(answer.result)
        return answer

    async def kill(self) -> None:
        """Kill the worker."""
        await self._connection.kill()

    async def _converse(self, task: Task, on_progress: OnProgress, lease: float) -> Answer:
        position = TraceContext.parse(current_traceparent())
        traceparent = str(position) if position is not None and position.sampled else ""
        order = Order(ticket=next(self._tickets), traceparent=traceparent, task=task)
        await _with_timeout(self._connection.send(order.model_dump_json().encode() + b"\n"), lease)
        while True:
            message = _parse(await _with_timeout(self._connection.receive(), lease))
            if isinstance(message, Heartbeat) or message.ticket != order.ticket:
                continue
            if isinstance(message, Answer):
                return message
            on_progress(message.update)

    async def _log_tail(self) -> str:
        try:
            return await _with_timeout(self._connection.log_tail(), _REPLY_SECONDS)
        except WorkerDied:
            return ""


async def _with_timeout(doing: Awaitable[T], seconds: float) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await doing
    except TimeoutError as error:
        raise WorkerDied(f"the worker did not respond for {seconds:,.0f} s") from error
    except OSError as error:
        raise WorkerDied(f"the worker cannot be reached: {error.strerror}") from error


def _parse(line: bytes) -> WorkerMessage:
    try:
        return WORKER_MESSAGE.validate_json(line)
    except ValidationError as error:
        raise WorkerDied(f"the worker wrote an invalid line: {line[:80]!r}") from error


def needed(task: Task) -> frozenset[str]:
    """Return the names of the models and data that a task loads."""
    recipe = task.recipe
    names = [*recipe.data.names]
    if isinstance(recipe, TaughtRecipe):
        names.append(recipe.teacher)
    match task:
        case InspectTask() | SourceTask() | ReferenceTask():
            names += filter(None, (recipe.model.path, recipe.model.builtin))
        case AdaptTask() | BranchTask():
            names.append(task.parent)
        case PackageTask():
            names.append(task.checkpoint)
    return frozenset(names)


def made(result: Result) -> frozenset[str]:
    """Return the models that stay loaded in a worker after a task."""
    match result:
        case SourceResult():
            return frozenset((result.teacher, result.root))
        case AdaptResult():
            return frozenset((result.checkpoint,))
    return frozenset()
