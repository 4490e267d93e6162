"""An engine wrapper that counts and times tasks."""

import time
from typing import Final

from typing_extensions import override

from mistify_server.engines.base import EngineLoad, TaskEngine
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import Result, TaskFailure, seconds_by_activity
from mistify_server.tasks.tasks import Task
from mistify_server.telemetry.metrics import Metrics

_DONE: Final = "done"
_FAILED: Final = "failed"
_STOPPED: Final = "stopped"


class MeasuredEngine(TaskEngine):
    """Counts and times the tasks of another engine."""

    def __init__(self, engine: TaskEngine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    @property
    @override
    def slots(self) -> int:
        return self._engine.slots

    @property
    @override
    def busy_since(self) -> float:
        return self._engine.busy_since

    @property
    @override
    def load(self) -> EngineLoad:
        return self._engine.load

    @override
    def start_worker(self) -> None:
        self._engine.start_worker()

    @override
    def keep_ready(self) -> None:
        self._engine.keep_ready()

    @override
    async def run(self, task: Task, on_progress: OnProgress) -> Result:
        start, outcome = time.monotonic(), _STOPPED
        try:
            result = await self._engine.run(task, on_progress)
            outcome = _FAILED if isinstance(result, TaskFailure) else _DONE
        finally:
            self._metrics.tasks.labels(task.kind, outcome).inc()
        for activity, seconds in seconds_by_activity(result, time.monotonic() - start).items():
            self._metrics.activities.labels(activity).inc(seconds)
        return result

    @override
    async def close(self) -> None:
        await self._engine.close()
