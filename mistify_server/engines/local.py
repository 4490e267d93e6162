"""The engine of one machine: a few slots, each with one supervised worker process."""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from mistify.errors import ErrorCode
from mistify_server.engines.base import Engine, OnProgress
from mistify_server.engines.process import WorkerDied, WorkerProcess
from mistify_server.tasks import (
    AdaptResult,
    AdaptTask,
    InspectTask,
    PackageTask,
    Progress,
    Result,
    SourceResult,
    SourceTask,
    Task,
    TaskFailure,
)

ATTEMPTS = 3

#: kind of task -> seconds after which it is stopped, as nothing reasonable takes that long.
DEADLINES: Mapping[str, float] = {"inspect": 240.0, "source": 86_400.0, "adapt": 86_400.0, "package": 3_600.0}

_log = logging.getLogger(__name__)


def worker_command(store: Path) -> list[str]:
    """How the worker of this package is started for the store in a directory."""
    return [sys.executable, "-m", "mistify_server.worker", "--store", str(store)]


class _Slot:
    """A place for one worker; `warm` names what the worker has loaded lately."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.worker: WorkerProcess | None = None
        self.warm: frozenset[str] = frozenset()

    async def ask(
        self, command: Sequence[str], task: Task, on_progress: OnProgress, seconds: float
    ) -> Result:
        """The answer of this slot's worker; unless it answers in time, the worker is no more."""
        if self.worker is None or not self.worker.running:
            await self.end()
            self.worker = await WorkerProcess.start(command, self.log)
        try:
            async with asyncio.timeout(seconds):
                result = await self.worker.ask(task, on_progress)
        except BaseException:
            await self.end()
            raise
        self.warm = _loaded(task) | _made(result)
        return result

    async def end(self) -> None:
        """End the worker, if there is one."""
        worker, self.worker, self.warm = self.worker, None, frozenset()
        if worker is not None:
            await worker.kill()


class LocalEngine(Engine):
    """Worker processes on this machine.

    They are started when first needed and then kept, as loading TensorFlow, data and models takes
    longer than many a task; a task goes to the free worker that has most of what it needs loaded. A
    worker that dies is replaced, and its task tried again. One more slot, empty most of the time, is
    for inspections while all the others are taken.

    Args:
        command: starts a worker.
        logs: the directory for what workers write to standard error.
        slots: how many tasks run at the same time.
        deadlines: seconds by kind of task.
    """

    def __init__(
        self, command: Sequence[str], logs: Path, slots: int = 1, deadlines: Mapping[str, float] = DEADLINES
    ) -> None:
        self._command = tuple(command)
        self._deadlines = deadlines
        self._idle = [_Slot(logs / f"worker-{number}.log") for number in range(slots)]
        self._all = tuple(self._idle)
        self._free = asyncio.Semaphore(slots)
        self._spare = _Slot(logs / "worker-inspections.log")
        self._spare_free = asyncio.Semaphore(1)

    @property
    @override
    def slots(self) -> int:
        return len(self._all)

    @override
    async def run(self, task: Task, on_progress: OnProgress) -> Result:
        if isinstance(task, InspectTask) and self._free.locked():
            async with self._spare_free:
                try:
                    return await self._attempt(self._spare, task, on_progress)
                finally:
                    await self._spare.end()
        async with self._free:
            slot = max(self._idle, key=lambda slot: len(slot.warm & _loaded(task)))
            self._idle.remove(slot)
            try:
                return await self._attempt(slot, task, on_progress)
            finally:
                self._idle.append(slot)

    @override
    async def close(self) -> None:
        for slot in (*self._all, self._spare):
            await slot.end()

    async def _attempt(self, slot: _Slot, task: Task, on_progress: OnProgress) -> Result:
        on_progress(Progress(stage="starting", step=0, total_steps=0))
        seconds = self._deadlines[task.kind]
        failure = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await slot.ask(self._command, task, on_progress, seconds)
            except TimeoutError:
                return _failure(f"the {task.kind} task was stopped as it took more than {seconds:,.0f} s")
            except WorkerDied as error:
                failure = str(error)
                _log.warning("%s task, attempt %d of %d: %s", task.kind, attempt, ATTEMPTS, failure)
        return _failure(f"the {task.kind} task failed {ATTEMPTS} times; the last time {failure}")


def _failure(message: str) -> TaskFailure:
    return TaskFailure(code=ErrorCode.INTERNAL.name, message=message)


def _loaded(task: Task) -> frozenset[str]:
    """What a worker loads for a task."""
    names = [task.data.train, task.data.test]
    match task:
        case InspectTask() | SourceTask():
            names += [name for name in (task.model.path, task.model.builtin) if name]
        case AdaptTask():
            names += [task.parent, task.teacher]
        case PackageTask():
            names.append(task.checkpoint)
    return frozenset(names)


def _made(result: Result) -> frozenset[str]:
    """The models that a worker still has after a task."""
    match result:
        case SourceResult():
            return frozenset((result.teacher, result.root))
        case AdaptResult():
            return frozenset((result.checkpoint,))
    return frozenset()
