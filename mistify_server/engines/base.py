"""Interface of engines."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import Result
from mistify_server.tasks.tasks import Task


@dataclass(frozen=True)
class EngineLoad:
    """The load of an engine: workers that are alive, workers with a task, and tasks that wait for a worker.

    `lost` counts the workers that have died with a task since the engine was opened.
    """

    alive: int
    busy: int
    waiting: int
    lost: int


class TaskEngine(ABC):
    """Runs tasks concurrently, and manages its workers.

    Engines are used from one event loop. A task that fails for reasons of its own (an unreadable model, a
    worker that dies repeatedly) ends as a `TaskFailure`, never as an exception.
    """

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return the maximum number of concurrent tasks; further tasks wait."""

    @property
    @abstractmethod
    def busy_since(self) -> float:
        """Return the start of the oldest running task, in seconds since 1970; now if none runs."""

    @property
    @abstractmethod
    def load(self) -> EngineLoad:
        """Return the load of the workers. Thread-safe."""

    @abstractmethod
    def start_worker(self) -> None:
        """Start a worker in advance, because it takes seconds; a failure is reported with the first task."""

    @abstractmethod
    def keep_ready(self) -> None:
        """Keep a spare worker ready, so that submissions do not wait for one to start."""

    @abstractmethod
    async def run(self, task: Task, on_progress: OnProgress) -> Result:
        """Run a task to completion. Cancelling the call stops the task immediately.

        The stage "starting" is reported when a worker starts the task, and again at every new attempt, after
        a stage with the reason for the failure of the last attempt. An `InspectTask`, for which a user is
        waiting, never waits behind other tasks.

        Raises:
            MistifyError: UNAVAILABLE, the engine can no longer run any task.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop all tasks and workers; the engine cannot be used afterwards."""
