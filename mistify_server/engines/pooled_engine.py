"""Base class of engines with a pool of workers: attempts, deadlines, and a spare worker for inspections."""

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from mistify.errors import ErrorCode, Problem
from mistify.jobs.job import STARTING, ProgressUpdate
from mistify_server.engines.base import EngineLoad, TaskEngine
from mistify_server.engines.failures import ended_natively, failure_of
from mistify_server.engines.supervision import (
    NoRoomForWorker,
    SupervisedWorker,
    WorkerConnection,
    WorkerDied,
    WorkerNotStarted,
    made,
    needed,
)
from mistify_server.engines.worker_pool import WorkerPool
from mistify_server.engines.worker_spans import finished_span
from mistify_server.tasks.in_progress import InProgress
from mistify_server.tasks.messages import LOADING, OnProgress
from mistify_server.tasks.results import Result, TaskFailure
from mistify_server.tasks.tasks import InspectTask, Task
from mistify_server.tracing.context import current_traceparent
from mistify_server.tracing.traces import Attributes, Span, Traces

ATTEMPTS = 3

#: Kind of task -> seconds after which it is stopped, because no reasonable task takes that long.
DEADLINES: Mapping[str, float] = {
    "inspect": 240.0,
    "source": 86_400.0,
    "prepare": 86_400.0,
    "adapt": 86_400.0,
    "branch": 86_400.0,
    "package": 86_400.0,
    "reference": 3_600.0,
}

#: Kind of task -> seconds without a heartbeat after which its worker is given up. Inspections and packaging
#: use TensorFlow's converter, which blocks all threads: for 6 s with ResNet-50.
LEASES: Mapping[str, float] = {
    "inspect": 240.0,
    "source": 60.0,
    "prepare": 60.0,
    "adapt": 60.0,
    "branch": 60.0,
    "package": 600.0,
    "reference": 600.0,
}

#: Seconds until the next attempt to start a worker for which there was no room.
_ROOM_SECONDS = 2.0

#: Maximum number of models for which an engine remembers the outcome of loading.
_KNOWN: Final = 1000

_SPARE: Final = "worker-inspections"

#: Environment of a worker without the TensorFlow optimizations that crash with some models.
_WITHOUT_ONEDNN: Final = {"TF_ENABLE_ONEDNN_OPTS": "0"}

_log = logging.getLogger(__name__)


class PooledEngine(TaskEngine):
    """An engine with a pool of workers, which are started on demand and then kept.

    A worker that dies, or sends no heartbeat during its lease, is replaced, and its task is retried. If
    native code crashed it, the retry and later tasks with the same model run without oneDNN optimizations. A
    spare worker serves inspections while all others are busy.

    Args:
        slots: Number of concurrent tasks.
        leases: Kind of task -> seconds without a heartbeat after which a worker is given up.
        deadlines: Kind of task -> seconds after which it is stopped.
        traces: Records the tasks, their attempts and the work on them.
        prefix: Start of the names of workers, by which servers that share a store tell theirs apart.
    """

    def __init__(
        self,
        slots: int,
        leases: Mapping[str, float],
        deadlines: Mapping[str, float],
        traces: Traces,
        prefix: str = "",
    ) -> None:
        self._prefix = prefix
        self._leases = leases
        self._deadlines = deadlines
        self._traces = traces
        self._regular = WorkerPool(self._start_regular, slots)
        self._spare = WorkerPool(self._start_spare, 1)
        self._is_spare_ready = False
        self._tasks = InProgress()
        self._lost = 0
        # Names of models that workers have loaded, and of models with which TensorFlow crashes with oneDNN.
        self._loaded: deque[str] = deque(maxlen=_KNOWN)
        self._fragile: deque[str] = deque(maxlen=_KNOWN)

    @property
    @override
    def slots(self) -> int:
        return self._regular.size

    @property
    @override
    def busy_since(self) -> float:
        return self._tasks.oldest_start

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
    def keep_ready(self) -> None:
        self._is_spare_ready = True

    @override
    async def run(self, task: Task, on_progress: OnProgress) -> Result:
        with self._tasks.entry(), self._traces.span(task.kind, {}) as span:
            result = await self._attempt(task, on_progress, span)
            if isinstance(result, TaskFailure):
                span.fail(result.code, result.message)
            return result

    async def _attempt(self, task: Task, on_progress: OnProgress, span: Span) -> Result:
        pool = self._regular
        if isinstance(task, InspectTask) and not await self._free():
            pool = self._spare
        onednn = needed(task).isdisjoint(self._fragile)
        attempt = _Attempt(task, on_progress, span, onednn=onednn)
        while True:
            try:
                return await self._ask(pool, attempt)
            except TimeoutError:
                return self._timed_out(attempt)
            except NoRoomForWorker as error:
                if isinstance(task, InspectTask):  # a user is waiting
                    return attempt.failure(error, loading=False)
                attempt.report_stage(f"waiting until a worker can be started: {error}")
                await asyncio.sleep(_ROOM_SECONDS)
            except WorkerDied as error:
                self._lost += not isinstance(error, WorkerNotStarted)
                if failure := self._failed(attempt, error):
                    return failure

    async def _ask(self, pool: WorkerPool, attempt: "_Attempt") -> Result:
        """Return the result from a pool's worker."""
        task = attempt.task
        lent = pool.worker(needed(task)) if attempt.onednn else pool.replaced(self._start_without_onednn)
        async with lent as worker, asyncio.timeout(self._deadlines[task.kind]):
            attempt.worker = worker.name
            if not isinstance(task, InspectTask):
                self._start_spare_in_time()
            attempt.report_stage(STARTING)
            result = await self._result(worker, attempt)
        if isinstance(result, TaskFailure):
            return result
        models = attempt.models | made(result)
        self._loaded.extend(models.difference(self._loaded))
        if attempt.onednn:
            return result
        self._fragile.extend(models.difference(self._fragile))
        return result.model_copy(update={"onednn": False})

    async def _result(self, worker: SupervisedWorker, attempt: "_Attempt") -> Result:
        """Return the result of an attempt, which is a span of the trace."""
        about: Attributes = {"mistify.worker": worker.name, "mistify.attempt": attempt.number}
        with self._traces.span("attempt", about) as span:
            answer = await worker.ask(attempt.task, attempt.report, self._leases[attempt.task.kind])
            result = answer.result
            error = result.message if isinstance(result, TaskFailure) else ""
            if answer.work is not None:
                self._traces.record(finished_span(answer.work, error), current_traceparent())
            if isinstance(result, TaskFailure):
                span.fail(result.code, error)
        return result

    def _timed_out(self, attempt: "_Attempt") -> TaskFailure:
        kind, seconds = attempt.task.kind, self._deadlines[attempt.task.kind]
        if attempt.stage == LOADING:
            fix = "try again when the machine is less busy, or use a smaller one"
            return _unloadable(f"took more than {seconds:,.0f} s to load", fix)
        message = f"the {kind} task was stopped because it took more than {seconds:,.0f} s"
        _log.warning(message, extra={"worker": attempt.worker, "task": kind})
        return TaskFailure(code=ErrorCode.INTERNAL.name, message=message)

    def _failed(self, attempt: "_Attempt", death: WorkerDied) -> TaskFailure | None:
        """Record an attempt with a crashed worker; return the task's failure after too many attempts."""
        number, task = attempt.number, attempt.task
        about = {"worker": attempt.worker, "task": task.kind, "attempt": number}
        about |= {"log_tail": death.log_tail} if death.log_tail else {}
        _log.warning("attempt %d of %d failed: %s", number, ATTEMPTS, death, extra=about)
        loading = attempt.stage == LOADING and not attempt.models <= set(self._loaded)
        if number == ATTEMPTS:
            return attempt.failure(death, loading=loading)
        next_one = ""
        if attempt.onednn and ended_natively(death):
            attempt.onednn = False
            next_one = "; the next one runs without TensorFlow's oneDNN optimizations"
        attempt.report_stage(f"attempt {number} of {ATTEMPTS} failed: {death}{next_one}")
        attempt.number += 1
        return None

    @override
    async def close(self) -> None:
        await self._regular.close()
        await self._spare.close()

    @abstractmethod
    async def _connect(self, name: str, environment: Mapping[str, str], *, spare: bool) -> WorkerConnection:
        """Start a worker as soon as there is room for it; start a spare worker immediately.

        Args:
            name: Name of the worker's log.
            environment: Environment variables to set in addition.
            spare: Whether it is the spare worker for inspections.

        Raises:
            WorkerDied: The worker was lost or could not be started; a retry may succeed.
            MistifyError: UNAVAILABLE, the engine can no longer run any task.
        """

    @abstractmethod
    async def _has_room(self) -> bool:
        """Check whether a worker could be started immediately."""

    def _start_spare_in_time(self) -> None:
        """Start the spare worker if the next inspection could not get another one."""
        if self._is_spare_ready and self._regular.busy == self._regular.size:
            self._spare.start_one()

    async def _free(self) -> bool:
        return self._regular.idle or (not self._regular.complete and await self._has_room())

    async def _start_regular(self, number: str) -> SupervisedWorker:
        return await self._started(f"{self._prefix}worker-{number}", {}, spare=False)

    async def _start_spare(self, _number: str) -> SupervisedWorker:
        return await self._started(self._prefix + _SPARE, {}, spare=True)

    async def _start_without_onednn(self, worker: SupervisedWorker) -> SupervisedWorker:
        return await self._started(worker.name, _WITHOUT_ONEDNN, spare=worker.name == self._prefix + _SPARE)

    async def _started(self, name: str, environment: Mapping[str, str], *, spare: bool) -> SupervisedWorker:
        worker = SupervisedWorker(await self._connect(name, environment, spare=spare), name)
        _log.info("a worker has started", extra={"worker": name})
        return worker


def _unloadable(reason: str, fix: str = "save the model again, or use a smaller one") -> TaskFailure:
    """Return the failure of a task with a model that no worker can load: each crashes, or takes too long."""
    problem = Problem("model", f"a model that {reason}", "one that a worker can load", fix)
    return TaskFailure(code=ErrorCode.INVALID_MODEL.name, message=f"the model {reason}", problems=(problem,))


class _Attempt:
    """The current attempt at a task.

    Args:
        on_progress: Receives the progress of the task.
        span: The task in its trace, which has the stages as events.
        onednn: Whether TensorFlow runs with its oneDNN optimizations.

    Attributes:
        number: Number of the attempt, from 1.
        stage: The last stage reported by the worker.
    """

    def __init__(self, task: Task, on_progress: OnProgress, span: Span, *, onednn: bool) -> None:
        self.task = task
        self.onednn = onednn
        self.number = 1
        self.worker = self.stage = ""
        self._on_progress, self._span = on_progress, span

    @property
    def models(self) -> frozenset[str]:
        """The names of the models that the task loads."""
        return needed(self.task) - frozenset(self.task.recipe.data.names)

    def failure(self, death: WorkerDied, *, loading: bool) -> TaskFailure:
        """Return the failure of the task. See `failure_of` for the arguments."""
        return failure_of(self.task, death, self.number, self.worker, loading=loading, onednn=self.onednn)

    def report(self, progress: ProgressUpdate) -> None:
        """Pass progress on."""
        if progress.stage != self.stage:
            self._span.note("stage", {"mistify.stage": progress.stage})
        self.stage = progress.stage
        self._on_progress(progress)

    def report_stage(self, stage: str) -> None:
        """Report a stage without steps."""
        self.report(ProgressUpdate(stage=stage, step=0, total_steps=0))
