"""Base of engines that keep workers: attempts, deadlines, room for inspections."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Mapping

from typing_extensions import override

from mistify.errors import ErrorCode, Problem
from mistify.jobs.job import STARTING, ProgressUpdate
from mistify_server.engines.base import Engine, EngineLoad
from mistify_server.engines.supervision import (
    SupervisedWorker,
    WorkerConnection,
    WorkerCrashed,
    WorkerDied,
    WorkerNotStarted,
    needed,
)
from mistify_server.engines.worker_pool import WorkerPool
from mistify_server.tasks.messages import LOADING, OnProgress
from mistify_server.tasks.results import Result, TaskFailure
from mistify_server.tasks.tasks import InspectTask, Task
from mistify_server.tasks.under_way import UnderWay

ATTEMPTS = 3

#: kind of task -> seconds after which it is stopped, as nothing reasonable takes that long.
DEADLINES: Mapping[str, float] = {
    "inspect": 240.0,
    "source": 86_400.0,
    "prepare": 86_400.0,
    "adapt": 86_400.0,
    "branch": 86_400.0,
    "package": 86_400.0,
    "reference": 3_600.0,
}

#: kind of task -> seconds without a sign of life after which its worker is given up. TensorFlow's converter,
#: with which inspections measure and packages are made, lets no thread speak meanwhile: 6 s for ResNet-50.
LEASES: Mapping[str, float] = {
    "inspect": 240.0,
    "source": 60.0,
    "prepare": 60.0,
    "adapt": 60.0,
    "branch": 60.0,
    "package": 600.0,
    "reference": 600.0,
}

_log = logging.getLogger(__name__)


class PooledEngine(Engine):
    """Workers that are started when first needed and then kept.

    A worker that dies, or gives no sign of life for the lease, is replaced, and its task tried again, unless
    it died while it loaded a model.
    One more worker, ended after use, is for inspections while all the others are taken.

    Args:
        slots: how many tasks run at the same time.
        leases: seconds by kind of task without a sign of life, after which a worker is given up.
        deadlines: seconds by kind of task, after which it is stopped.
    """

    def __init__(self, slots: int, leases: Mapping[str, float], deadlines: Mapping[str, float]) -> None:
        self._leases = leases
        self._deadlines = deadlines
        self._regular = WorkerPool(self._start_regular, slots)
        self._spare = WorkerPool(self._start_spare, 1, keep=False)
        self._tasks = UnderWay()
        self._lost = 0

    @property
    @override
    def slots(self) -> int:
        return self._regular.size

    @property
    @override
    def busy_since(self) -> float:
        return self._tasks.since

    @property
    @override
    def load(self) -> EngineLoad:
        pools = self._regular, self._spare
        return EngineLoad(
            alive=sum(pool.alive for pool in pools),
            busy=sum(pool.busy for pool in pools),
            waiting=sum(pool.waiting for pool in pools),
            lost=self._lost,
        )

    @override
    def start_worker(self) -> None:
        self._regular.start_one()

    @override
    async def run(self, task: Task, on_progress: OnProgress) -> Result:
        with self._tasks.one():
            return await self._attempt(task, on_progress)

    async def _attempt(self, task: Task, on_progress: OnProgress) -> Result:
        pool = self._regular
        if isinstance(task, InspectTask) and not await self._free():
            pool = self._spare
        seconds = self._deadlines[task.kind]
        failure = stage = name = ""
        code = WorkerDied.code

        def report(progress: ProgressUpdate) -> None:
            nonlocal stage
            stage = progress.stage
            on_progress(progress)

        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with pool.worker(needed(task)) as worker, asyncio.timeout(seconds):
                    name = worker.name
                    report(ProgressUpdate(stage=STARTING, step=0, total_steps=0))
                    return await worker.ask(task, report, self._leases[task.kind])
            except TimeoutError:
                if stage == LOADING:
                    return _unloadable(f"took more than {seconds:,.0f} s to load")
                message = f"the {task.kind} task was stopped as it took more than {seconds:,.0f} s"
                _log.warning(message, extra={"worker": name, "task": task.kind})
                return _failure(message)
            except WorkerDied as error:
                self._lost += not isinstance(error, WorkerNotStarted)
                failure, code = str(error), error.code
                about = {"worker": name, "task": task.kind, "attempt": attempt}
                _log.warning("attempt %d of %d failed: %s", attempt, ATTEMPTS, failure, extra=about)
                reason = failure.splitlines()[0]
                if stage == LOADING and isinstance(error, WorkerCrashed):
                    return _unloadable(f"could not be loaded: {reason}")
                lost = f"attempt {attempt} of {ATTEMPTS} failed: {reason}"
                report(ProgressUpdate(stage=lost, step=0, total_steps=0))
        return _failure(f"the {task.kind} task failed {ATTEMPTS} times; the last time {failure}", code)

    @override
    async def close(self) -> None:
        await self._regular.close()
        await self._spare.close()

    @abstractmethod
    async def _connect(self, name: str, *, spare: bool) -> WorkerConnection:
        """Start a worker, as soon as there is room for it; a spare one at once.

        Args:
            name: what its log is called.
            spare: whether it is the one for inspections while all others are taken.

        Raises:
            WorkerDied: it was lost on the way, or could not be started; the next try may succeed.
            MistifyError: UNAVAILABLE, nothing can be run any more.
        """

    @abstractmethod
    async def _has_room(self) -> bool:
        """Check whether a worker could be started now without waiting."""

    async def _free(self) -> bool:
        return self._regular.idle or (not self._regular.complete and await self._has_room())

    async def _start_regular(self, number: str) -> SupervisedWorker:
        return await self._started(f"worker-{number}", spare=False)

    async def _start_spare(self, _number: str) -> SupervisedWorker:
        return await self._started("worker-inspections", spare=True)

    async def _started(self, name: str, *, spare: bool) -> SupervisedWorker:
        worker = SupervisedWorker(await self._connect(name, spare=spare), name)
        _log.info("a worker has started", extra={"worker": name})
        return worker


def _unloadable(reason: str) -> TaskFailure:
    """Return the failure of a task whose model ends each worker that loads it."""
    problem = Problem(
        "model",
        f"a model that {reason}",
        "one that a worker can load",
        "save it again, or a smaller one",
    )
    return TaskFailure(code=ErrorCode.INVALID_MODEL.name, message=f"the model {reason}", problems=(problem,))


def _failure(message: str, code: ErrorCode = ErrorCode.INTERNAL) -> TaskFailure:
    return TaskFailure(code=code.name, message=message)
