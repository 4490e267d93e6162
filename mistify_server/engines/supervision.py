"""Supervision of one worker: its tasks, the answers that count, and when it is given up."""

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

T = TypeVar("T")

#: The longest line that a worker may write, in bytes.
MAX_LINE = 4 * 2**20

#: Seconds within which a worker answers a question that needs no work.
_REPLY_SECONDS = 30.0


class WorkerDied(Exception):  # noqa: N818 (what happened; the next attempt may well succeed)
    """A worker ended, fell silent or wrote nonsense before it had answered; the message has the reason.

    Attributes:
        code: The error code of the task if no other attempt succeeds.
        log_tail: End of the log during the task, for the server's operator.
    """

    code = ErrorCode.INTERNAL
    log_tail = ""


class WorkerCrashed(WorkerDied):
    """The worker's process ended by itself, or the system ended it.

    Args:
        exit_code: Exit code of the process, negative for the signal that ended it; None if unknown.
    """

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        if exit_code is not None and exit_code < 0:
            super().__init__(f"the worker was ended by signal {signal.Signals(-exit_code).name}")
        else:
            super().__init__(f"the worker ended with exit code {exit_code}")


class WorkerNotStarted(WorkerDied):
    """The worker's process could not be started, through no fault of the task."""

    code = ErrorCode.UNAVAILABLE


class NoRoomForWorker(WorkerNotStarted):
    """The machine has no room for another process at the moment, such as no file descriptor."""


class WorkerConnection(ABC):
    """Connection to a worker process, wherever it runs: a line goes in, lines come out.

    Raises:
        WorkerDied: The worker cannot be reached any more; raised by every method but `alive` and `kill`.
    """

    @abstractmethod
    async def alive(self) -> bool:
        """Check whether the process runs and can be reached."""

    @abstractmethod
    async def send(self, line: bytes) -> None:
        """Write a line to the process."""

    @abstractmethod
    async def receive(self) -> bytes:
        """Return the next line that the process wrote."""

    @abstractmethod
    async def log_tail(self) -> str:
        """Return the end of the process's log since the last line was sent, or since its start."""

    @abstractmethod
    async def kill(self) -> None:
        """End the process and all that it has started, as far as they can be reached."""


class SupervisedWorker:
    """A worker that is asked for one task after the other.

    Every attempt has a ticket, and an answer counts only under the ticket of the current one: a late answer
    to an attempt that was given up is refused.

    Args:
        name: Name of the worker's log.
    """

    #: Different for all attempts of this process.
    _tickets = itertools.count(1)

    def __init__(self, connection: WorkerConnection, name: str) -> None:
        self._connection = connection
        self.name = name
        self.warm: frozenset[str] = frozenset()

    async def alive(self) -> bool:
        """Check whether it can be asked."""
        try:
            return await _in_time(self._connection.alive(), _REPLY_SECONDS)
        except WorkerDied:
            return False

    async def ask(self, task: Task, on_progress: OnProgress, lease: float) -> Result:
        """Return the result of a task.

        Args:
            on_progress: Receives the task's progress.
            lease: Seconds without a word, not even a heartbeat, after which the worker is given up.

        Raises:
            WorkerDied: The worker did not come to an answer. It must then be killed.
        """
        try:
            result = await self._converse(task, on_progress, lease)
        except WorkerDied as error:
            error.log_tail = await self._log_tail()
            raise
        self.warm = needed(task) | made(result)
        return result

    async def kill(self) -> None:
        """End it."""
        await self._connection.kill()

    async def _converse(self, task: Task, on_progress: OnProgress, lease: float) -> Result:
        order = Order(ticket=next(self._tickets), task=task)
        await _in_time(self._connection.send(order.model_dump_json().encode() + b"\n"), lease)
        while True:
            message = _parse(await _in_time(self._connection.receive(), lease))
            if isinstance(message, Heartbeat) or message.ticket != order.ticket:
                continue
            if isinstance(message, Answer):
                return message.result
            on_progress(message.update)

    async def _log_tail(self) -> str:
        try:
            return await _in_time(self._connection.log_tail(), _REPLY_SECONDS)
        except WorkerDied:
            return ""


async def _in_time(doing: Awaitable[T], seconds: float) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await doing
    except TimeoutError as error:
        raise WorkerDied(f"the worker gave no sign of life for {seconds:,.0f} s") from error
    except OSError as error:
        raise WorkerDied(f"the worker cannot be reached: {error.strerror}") from error


def _parse(line: bytes) -> WorkerMessage:
    try:
        return WORKER_MESSAGE.validate_json(line)
    except ValidationError as error:
        raise WorkerDied(f"the worker wrote a line that is not an answer: {line[:80]!r}") from error


def needed(task: Task) -> frozenset[str]:
    """Return the names of all that a worker loads for a task."""
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
    """Return the models that a worker still has after a task."""
    match result:
        case SourceResult():
            return frozenset((result.teacher, result.root))
        case AdaptResult():
            return frozenset((result.checkpoint,))
    return frozenset()
