"""Interface of engines."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import Result
from mistify_server.tasks.tasks import Task


@dataclass(frozen=True)
class EngineLoad:
    """The workers of an engine: those alive, and of them those with a task; the tasks that wait for one.

    `lost` have died with a task since the engine was opened.
    """

    alive: int
    busy: int
    waiting: int
    lost: int


class TaskEngine(ABC):
    """Runner of tasks, several at a time, which takes care of its workers.

    Engines are used from one event loop. A task that fails through its own fault (a model that cannot be
    read, a worker that dies again and again) ends as a `TaskFailure`, never as an exception.
    """

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return how many tasks run at the same time; more wait for their turn."""

    @property
    @abstractmethod
    def busy_since(self) -> float:
        """Return when the oldest task that still runs began, in seconds since 1970; now if none runs."""

    @property
    @abstractmethod
    def load(self) -> EngineLoad:
        """Return how its workers stand; any thread may ask."""

    @abstractmethod
    def start_worker(self) -> None:
        """Start a worker before anything waits for it, which takes seconds; a failure shows with a task."""

    @abstractmethod
    def keep_ready(self) -> None:
        """Keep a worker ready, so that submissions beside running tasks need not wait for one to start."""

    @abstractmethod
    async def run(self, task: Task, on_progress: OnProgress) -> Result:
        """Run a task to its end. Cancelling the call stops the task at once.

        The stage "starting" is reported when a worker takes up the task, and again at every new attempt,
        after a stage that says why the last attempt failed. An `InspectTask`, for which a user is waiting,
        never waits behind other tasks.

        Raises:
            MistifyError: UNAVAILABLE, nothing can be run any more, whatever the task.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop everything that runs; the engine cannot be used afterwards."""
