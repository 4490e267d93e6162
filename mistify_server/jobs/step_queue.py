"""What is to be done next, while some of it is being done."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Step: TypeAlias = Callable[[], Awaitable[None]]


class StepQueue:
    """Steps, of which a few are taken at a time, those with the lowest rank first.

    Steps, and whoever else runs on the same event loop, can add more. The first step that raises an
    exception ends the run with it.
    """

    def __init__(self) -> None:
        self._queue: asyncio.PriorityQueue[tuple[tuple[int, ...], int, Step]] = asyncio.PriorityQueue()
        self._count = itertools.count()
        self._left = 0

    def add(self, rank: tuple[int, ...], step: Step) -> None:
        """Put a step on the queue."""
        self._queue.put_nowait((rank, next(self._count), step))
        self._left += 1

    async def run(self, at_once: int) -> None:
        """Take steps, so many at once, until none is left; none can be added between that and the return."""
        try:
            while self._left:  # one may be added while the takers end
                async with asyncio.TaskGroup() as group:
                    takers = [group.create_task(self._take()) for _ in range(at_once)]
                    await self._queue.join()
                    for taker in takers:
                        taker.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _take(self) -> None:
        while True:
            _, _, step = await self._queue.get()
            await step()
            self._left -= 1
            self._queue.task_done()
