"""A queue of steps that run concurrently."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mistify_server.tasks.in_progress import InProgress

Step: TypeAlias = Callable[[], Awaitable[None]]


class StepQueue:
    """Runs steps concurrently, lowest rank first.

    Steps can be added at any time from the same event loop. The first exception in a step ends the run.
    """

    def __init__(self) -> None:
        self._queue: asyncio.PriorityQueue[tuple[tuple[int, ...], int, Step]] = asyncio.PriorityQueue()
        self._count = itertools.count()
        self._left = 0
        self._steps = InProgress()

    @property
    def busy_since(self) -> float:
        """Return when the oldest step in progress began, in seconds since 1970; now if there is none."""
        return self._steps.oldest_start

    @property
    def waiting(self) -> int:
        """Return the number of steps that have not started."""
        return self._queue.qsize()

    @property
    def empty(self) -> bool:
        """Return whether all steps are finished."""
        return not self._left

    def add(self, rank: tuple[int, ...], step: Step) -> None:
        """Put a step on the queue."""
        self._queue.put_nowait((rank, next(self._count), step))
        self._left += 1

    async def run(self, at_once: int) -> None:
        """Run the steps, at most `at_once` at a time, until none is left.

        No step can be added between the end of the last step and the return.
        """
        try:
            while self._left:  # a step may be added while the runners end
                async with asyncio.TaskGroup() as group:
                    runners = [group.create_task(self._run_steps()) for _ in range(at_once)]
                    await self._queue.join()
                    for runner in runners:
                        runner.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _run_steps(self) -> None:
        while True:
            _, _, step = await self._queue.get()
            with self._steps.entry():
                await step()
            self._left -= 1
            self._queue.task_done()
