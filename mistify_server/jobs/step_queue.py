"""The steps of a job, and the scheduler that starts the steps of all jobs."""

import asyncio
import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, TypeAlias

from mistify.jobs.job import JobPriority
from mistify_server.identity.callers import CallerId
from mistify_server.tasks.in_progress import InProgress

Step: TypeAlias = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    """Do nothing before a step."""


@dataclass
class _Share:
    """The slots in use by a tenant, a caller or a job, and their last turn: a number that rises with each."""

    running: int = 0
    turn: int = -1


class StepScheduler:
    """Starts the steps of all jobs, at most as many at a time as there are slots.

    Tenants share the slots equally, whatever the number of their callers and the priorities of their jobs. A
    tenant's slot goes to a job of the highest priority. Among these, callers share the slots equally, however
    many jobs they have, and so do the jobs of a caller: the one with the fewest steps in progress comes
    first, then the one that has waited longest for its turn. The order depends only on the order of calls,
    never on time. Use it from one event loop.

    Args:
        slots: Number of steps that run at the same time.
        most_of: Returns how many of them may be a caller's; None for no limit.
    """

    def __init__(self, slots: int, most_of: Callable[[CallerId], int | None] = lambda _: None) -> None:
        self._free = slots
        self._most_of = most_of
        self._tenants: defaultdict[str, _Share] = defaultdict(_Share)
        self._callers: defaultdict[CallerId, _Share] = defaultdict(_Share)
        self._queues: list[StepQueue] = []
        self._expected: set[str] = set()
        self._turns = itertools.count()
        self._due: asyncio.Handle | None = None

    @property
    def idle(self) -> bool:
        """Return whether a slot is free and no step waits for one, so that a new step would start at once."""
        return self._free > 0 and not self._expected and not any(queue.ready for queue in self._queues)

    def expect(self, job_ids: Iterable[str]) -> None:
        """Start no steps until jobs have joined or are dismissed, so that the first step is not any job's."""
        self._expected.update(job_ids)

    def dismiss(self, job_id: str) -> None:
        """Do not wait for a job; no effect unless it is expected."""
        self._expected.discard(job_id)
        self.wake()

    def join(self, queue: "StepQueue") -> None:
        """Start the steps of a job from now on."""
        self._queues.append(queue)
        self.dismiss(queue.job_id)

    def leave(self, queue: "StepQueue") -> None:
        """Start no more steps of a job; no effect if none are started."""
        if queue in self._queues:
            self._queues.remove(queue)

    def running(self, caller: CallerId) -> int:
        """Return the number of a caller's steps in progress. Thread-safe."""
        share = self._callers.get(caller)
        return 0 if share is None else share.running

    def wake(self) -> None:
        """Start the steps that may start, once the current callback of the event loop has added its own."""
        if self._due is None:
            # A context of its own: a step does not inherit that of whatever woke the scheduler.
            self._due = asyncio.get_running_loop().call_soon(self._start, context=Context())

    def release(self, queue: "StepQueue") -> None:
        """Take back the slot of a step."""
        self._free += 1
        for share in self._shares(queue):
            share.running -= 1
        self.wake()

    def _start(self) -> None:
        self._due = None
        while self._free and not self._expected:
            ready = [queue for queue in self._queues if queue.ready]
            may_start = {caller for caller in {queue.caller for queue in ready} if self._has_room(caller)}
            chosen = min(
                (queue for queue in ready if queue.caller in may_start), key=self._order, default=None
            )
            if chosen is None:
                return
            self._free -= 1
            turn = next(self._turns)
            for share in self._shares(chosen):
                share.running, share.turn = share.running + 1, turn
            chosen.start_next()

    def _has_room(self, caller: CallerId) -> bool:
        """Return whether a caller may have another step in progress."""
        most = self._most_of(caller)
        return most is None or self.running(caller) < most

    def _order(self, queue: "StepQueue") -> tuple[int, ...]:
        """Return the place of a job among those that are ready; the lowest is first."""
        tenant, caller, job = self._shares(queue)
        own = caller.running, caller.turn, job.running, job.turn
        return (tenant.running, tenant.turn, -queue.priority.level, *own)

    def _shares(self, queue: "StepQueue") -> tuple[_Share, ...]:
        """Return the shares of a job's tenant, of its caller, and of the job itself."""
        return self._tenants[queue.caller.tenant], self._callers[queue.caller], queue.share


class StepQueue:
    """The steps of one job, lowest rank first.

    Steps can be added at any time from the same event loop. The first exception in a step ends the run.

    Args:
        caller: The caller whose job it is.
        priority: The job's priority.
        paused: Whether it starts no steps until it is resumed.
        before_step: Called by each step with its slot, before it begins.

    Attributes:
        share: The job's share of the caller's slots.
    """

    def __init__(
        self,
        scheduler: StepScheduler,
        job_id: str,
        caller: CallerId,
        *,
        priority: JobPriority = JobPriority.NORMAL,
        paused: bool = False,
        before_step: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.job_id = job_id
        self.caller = caller
        self.priority = priority
        self.share = _Share()
        self._before_step = before_step
        self._scheduler = scheduler
        self._paused = paused
        self._waiting: list[tuple[tuple[int, ...], int, Step]] = []
        self._suspended: deque[tuple[asyncio.Task[Any] | None, asyncio.Future[None]]] = deque()
        self._with_slot: set[asyncio.Task[Any] | None] = set()
        self._count = itertools.count()
        self._left = 0
        self._all_done = asyncio.Event()
        self._steps = InProgress()
        self._group = asyncio.TaskGroup()
        self._context = Context()

    @property
    def busy_since(self) -> float:
        """Return when the oldest step in progress began, in seconds since 1970; now if there is none."""
        return self._steps.oldest_start

    @property
    def waiting(self) -> int:
        """Return the number of steps that wait for a slot; 0 while the job is paused. Thread-safe."""
        return 0 if self._paused else len(self._waiting) + len(self._suspended)

    @property
    def empty(self) -> bool:
        """Return whether all steps are finished."""
        return not self._left

    @property
    def ready(self) -> bool:
        """Return whether a step could start or continue if there were a slot for it."""
        return not self._paused and bool(self._suspended or self._waiting)

    @property
    def paused(self) -> bool:
        """Return whether the job is paused: no step starts, and those in progress wait at a checkpoint."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self._scheduler.wake()

    def add(self, rank: tuple[int, ...], step: Step) -> None:
        """Put a step on the queue."""
        heapq.heappush(self._waiting, (rank, next(self._count), step))
        self._left += 1
        self._scheduler.wake()

    async def run(self) -> None:
        """Run the steps until none is left.

        No step can be added between the end of the last step and the return.
        """
        try:
            async with asyncio.TaskGroup() as self._group:
                self._context = copy_context()
                self._scheduler.join(self)
                try:
                    while self._left:
                        self._all_done.clear()
                        await self._all_done.wait()
                finally:
                    self._scheduler.leave(self)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def checkpoint(self, seconds: float = 0.0) -> None:
        """Let other steps go first, and wait while the job is paused; a step calls it between its tasks.

        Args:
            seconds: How long the step needs no slot.
        """
        task = asyncio.current_task()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._with_slot.remove(task)
        if seconds:
            self._scheduler.release(self)
            await asyncio.sleep(seconds)
            self._suspended.append((task, turn))
            self._scheduler.wake()
        else:
            self._suspended.append((task, turn))
            self._scheduler.release(self)
        await turn

    def start_next(self) -> None:
        """Use a slot for a suspended step, or else for a new one; `ready` must be true."""
        if self._suspended:
            task, turn = self._suspended.popleft()
            self._with_slot.add(task)
            turn.set_result(None)
            return
        _, _, step = heapq.heappop(self._waiting)
        task = self._group.create_task(self._run_step(step), context=self._context.copy())
        self._with_slot.add(task)
        task.add_done_callback(self._on_end)

    async def _run_step(self, step: Step) -> None:
        with self._steps.entry():
            await self._before_step()
            await step()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        # Not at the end of the step itself: until the task has ended, the group would wait for it.
        if task.cancelled() or task.exception() is not None:
            self._scheduler.leave(self)  # the group accepts no more steps
        if task in self._with_slot:
            self._with_slot.remove(task)
            self._scheduler.release(self)
        self._left -= 1
        if not self._left:
            self._all_done.set()
