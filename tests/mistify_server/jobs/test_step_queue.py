import asyncio
import time
from functools import partial

import pytest

from mistify_server.jobs.step_queue import StepQueue


async def test_low_ranks_run_first_and_steps_can_add_steps() -> None:
    queue, seen = StepQueue(), []

    async def step(name: str) -> None:
        seen.append(name)
        if name == "second":
            queue.add((0,), partial(step, "added"))

    for rank, name in ((3, "third"), (1, "first"), (2, "second")):
        queue.add((rank,), partial(step, name))
    await queue.run(1)
    assert seen == ["first", "second", "added", "third"]


async def test_a_limited_number_of_steps_run_at_once() -> None:
    queue, meeting = StepQueue(), asyncio.Barrier(3)

    async def meet() -> None:
        await meeting.wait()

    for _ in range(3):
        queue.add((0,), meet)
    await asyncio.wait_for(queue.run(3), 10)


async def test_an_exception_ends_the_run() -> None:
    queue, cancelled = StepQueue(), asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def fail() -> None:
        raise LookupError("gone")

    queue.add((0,), wait)
    queue.add((1,), fail)
    with pytest.raises(LookupError, match="gone"):
        await queue.run(2)
    assert cancelled.is_set()


@pytest.mark.parametrize("turns", range(8))
async def test_a_step_added_at_the_end_runs_or_is_refused(turns: int) -> None:
    """It is added a number of event loop iterations after the last step has begun."""
    queue, loop = StepQueue(), asyncio.get_running_loop()
    over, taken, added_in_time = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late() -> None:
        taken.set()

    def add_after(left: int) -> None:
        if left:
            loop.call_soon(add_after, left - 1)
        elif not over.is_set():
            added_in_time.set()
            queue.add((0,), late)

    async def last() -> None:
        add_after(turns)

    queue.add((0,), last)
    await queue.run(2)
    over.set()
    assert taken.is_set() == added_in_time.is_set()


async def test_an_empty_queue_is_done() -> None:
    await StepQueue().run(2)


async def test_the_queue_is_busy_since_the_start_of_its_oldest_step() -> None:
    queue, pauses, seen = StepQueue(), [asyncio.Event(), asyncio.Event()], []

    async def paused() -> None:
        for pause in pauses:
            await pause.wait()
            seen.append(queue.busy_since)

    before = time.time()
    queue.add((0,), paused)
    running = asyncio.create_task(queue.run(1))
    for pause in pauses:
        await asyncio.sleep(0)
        pause.set()
    await running
    # During the step, the time of its start, before it could make a file; after it, the current time.
    assert seen[0] == seen[1] < before
    assert queue.busy_since >= before
