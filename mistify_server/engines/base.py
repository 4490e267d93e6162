"""What an engine is: something that runs tasks."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from mistify_server.tasks.messages import TaskProgress
from mistify_server.tasks.results import Result
from mistify_server.tasks.tasks import Task

#: Told how far a task is; first, with the stage "starting", when something has taken the task up, and again
#: with that stage whenever the task is begun anew.
OnProgress: TypeAlias = Callable[[TaskProgress], None]


class Engine(ABC):
    """Runs tasks, several at a time, and takes care of whatever runs them.

    Engines are used from one event loop. What fails for a reason of its own (a model that cannot be
    read, a worker that dies again and again) ends as a `TaskFailure`, never as an exception.
    """

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many tasks run at the same time; more than that wait for their turn."""

    @abstractmethod
    async def run(self, task: Task, on_progress: OnProgress) -> Result:
        """Run a task to its end. To cancel the call stops the task at once.

        An `InspectTask`, for which a user is waiting, never waits behind other tasks.

        Raises:
            MistifyError: UNAVAILABLE, nothing can be run any more, whatever the task.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop everything that runs; the engine cannot be used any more."""
