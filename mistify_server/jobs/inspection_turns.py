"""Turns of tenants at the workers that inspect models before jobs and plans."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mistify_server.identity.callers import current_caller
from mistify_server.jobs.step_queue import StepQueue, StepScheduler

_T = TypeVar("_T")


class InspectionTurns:
    """Lets tenants, and the callers of each, take turns at inspections, as they do at the steps of jobs.

    Workers inspect in the order of requests. So without turns, a caller with many plans at once would keep
    everyone else from submitting anything until all are inspected.

    Args:
        workers: Number of inspections at the same time.
    """

    def __init__(self, workers: int) -> None:
        self._scheduler = StepScheduler(workers)
        self._queues: set[StepQueue] = set()

    @property
    def waiting(self) -> int:
        """Return the number of inspections that wait for their turns. Thread-safe."""
        return sum(queue.waiting for queue in tuple(self._queues))

    async def take(self, inspect: Callable[[], Awaitable[_T]]) -> _T:
        """Return what an inspection of the current caller returns, once it is its turn."""
        results: list[_T] = []

        async def step() -> None:
            results.append(await inspect())

        queue = StepQueue(self._scheduler, "inspection", current_caller().id)
        queue.add((), step)
        self._queues.add(queue)
        try:
            await queue.run()
        finally:
            self._queues.remove(queue)
        return results[0]
