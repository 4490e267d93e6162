"""Queues of steps that a test starts and ends."""

import asyncio
from functools import partial

from mistify.jobs.job import JobPriority
from mistify_server.identity.callers import DEFAULT_TENANT, CallerId
from mistify_server.jobs.step_queue import StepQueue, StepScheduler


async def settled() -> None:
    """Return once the event loop has nothing left to do: no step here waits for anything but the others."""
    for _ in range(20):
        await asyncio.sleep(0)


class Steps:
    """Queues whose steps are listed when they start, and end when the test says so."""

    def __init__(self, slots: int, limits: dict[str, int] | None = None) -> None:
        self.scheduler = StepScheduler(slots, lambda caller: (limits or {}).get(caller.name))
        self.started: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.running: list[asyncio.Task[None]] = []

    def queue(
        self,
        *names: str,
        job_id: str = "",
        caller: str = "",
        tenant: str = DEFAULT_TENANT,
        priority: JobPriority = JobPriority.NORMAL,
        paused: bool = False,
        parts: int = 1,
    ) -> StepQueue:
        """Run a queue with steps, which consist of a number of parts."""
        submitter = CallerId(tenant, caller)
        queue = StepQueue(self.scheduler, job_id, submitter, priority=priority, paused=paused)
        for name in names:
            queue.add((0,), partial(self.step, queue, name, parts))
        self.running.append(asyncio.create_task(queue.run()))
        return queue

    async def step(self, queue: StepQueue, name: str, parts: int) -> None:
        for part in range(parts):
            if part:
                await queue.checkpoint()
            own = f"{name}.{part}" if part else name
            self.started.append(own)
            self.ends[own] = asyncio.Event()
            await self.ends[own].wait()

    async def end(self, name: str) -> list[str]:
        """End a part of a step, and return all that have started by then."""
        await settled()
        self.ends[name].set()
        await settled()
        return self.started
