import asyncio
import time
from contextvars import ContextVar
from functools import partial

import pytest

from mistify_server.identity.callers import LOCAL
from mistify_server.jobs.step_queue import StepQueue, StepScheduler
from tests.mistify_server.jobs.steps import Steps, settled

JOB: ContextVar[str] = ContextVar("JOB")


async def test_low_ranks_run_first_and_steps_can_add_steps() -> None:
    queue, seen = StepQueue(StepScheduler(1), "job", LOCAL.id), []

    async def step(name: str) -> None:
        seen.append(name)
        if name == "second":
            queue.add((0,), partial(step, "added"))

    for rank, name in ((3, "third"), (1, "first"), (2, "second")):
        queue.add((rank,), partial(step, name))
    await queue.run()
    assert seen == ["first", "second", "added", "third"]


async def test_a_limited_number_of_steps_run_at_once() -> None:
    queue, meeting = StepQueue(StepScheduler(3), "job", LOCAL.id), asyncio.Barrier(3)
    running, seen = 0, []

    async def meet() -> None:
        nonlocal running
        running += 1
        await meeting.wait()
        await settled()
        seen.append(running)
        running -= 1

    for _ in range(6):
        queue.add((0,), meet)
    await asyncio.wait_for(queue.run(), 10)
    assert max(seen) == 3


async def test_an_exception_ends_the_run() -> None:
    queue, cancelled = StepQueue(StepScheduler(2), "job", LOCAL.id), asyncio.Event()

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
        await queue.run()
    assert cancelled.is_set()


@pytest.mark.parametrize("turns", range(8))
async def test_a_step_added_at_the_end_runs_or_is_refused(turns: int) -> None:
    """It is added a number of event loop iterations after the last step has begun."""
    queue, loop = StepQueue(StepScheduler(2), "job", LOCAL.id), asyncio.get_running_loop()
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
    await queue.run()
    over.set()
    assert taken.is_set() == added_in_time.is_set()


async def test_an_empty_queue_is_done() -> None:
    queue = StepQueue(StepScheduler(2), "job", LOCAL.id)
    await asyncio.wait_for(queue.run(), 10)
    assert queue.empty


async def test_the_queue_is_busy_since_the_start_of_its_oldest_step() -> None:
    queue, seen = StepQueue(StepScheduler(1), "job", LOCAL.id), []
    pauses = [asyncio.Event(), asyncio.Event()]

    async def paused() -> None:
        for pause in pauses:
            await pause.wait()
            seen.append(queue.busy_since)

    before = time.time()
    queue.add((0,), paused)
    running = asyncio.create_task(queue.run())
    for pause in pauses:
        await settled()
        pause.set()
    await running
    # During the step, the time of its start, before it could make a file; after it, the current time.
    assert seen[0] == pytest.approx(seen[1], abs=1e-3)
    assert max(seen) < before
    assert queue.busy_since >= before


async def test_a_paused_job_starts_nothing_and_others_get_its_slots() -> None:
    steps = Steps(1)
    first = steps.queue("a", "b")
    steps.queue("x", "y")
    await settled()
    first.paused = True
    assert await steps.end("a") == ["a", "x"]
    assert await steps.end("x") == ["a", "x", "y"]
    assert (first.waiting, first.empty) == (0, False)
    assert await steps.end("y") == ["a", "x", "y"]
    first.paused = False
    assert await steps.end("b") == ["a", "x", "y", "b"]
    await asyncio.gather(*steps.running)


async def test_a_step_of_a_paused_job_ends_at_its_checkpoint_and_continues_first() -> None:
    steps = Steps(1)
    first = steps.queue("a", "b", parts=2)
    steps.queue("x")
    await settled()
    first.paused = True
    assert await steps.end("a") == ["a", "x"]
    assert await steps.end("x") == ["a", "x"]
    first.paused = False
    await settled()
    assert steps.started == ["a", "x", "a.1"]
    assert await steps.end("a.1") == ["a", "x", "a.1", "b"]


async def test_jobs_take_turns_at_checkpoints_too() -> None:
    steps = Steps(1)
    steps.queue("a", parts=3)
    steps.queue("x", "y")
    for name in ("a", "x", "a.1", "y"):
        await steps.end(name)
    assert steps.started == ["a", "x", "a.1", "y", "a.2"]


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_step_that_waits_needs_no_slot(stopped: bool) -> None:
    scheduler, seen, waits = StepScheduler(1), list[str](), asyncio.Event()
    queue, other = (StepQueue(scheduler, name, LOCAL.id) for name in "ab")

    async def waiting() -> None:
        waits.set()
        await queue.checkpoint(3_600.0 if stopped else 0.001)
        seen.append("waited")

    async def at_once() -> None:
        seen.append("at once")
        if not stopped:
            await asyncio.sleep(0.01)

    queue.add((0,), waiting)
    running = asyncio.create_task(queue.run())
    await waits.wait()
    other.add((0,), at_once)
    await asyncio.wait_for(other.run(), 60)
    if stopped:
        running.cancel()
    await asyncio.wait([running])
    assert (seen, scheduler.idle, scheduler.running(LOCAL.id)) == (
        ["at once"] if stopped else ["at once", "waited"],
        True,
        0,
    )


@pytest.mark.parametrize("at", ["waiting", "running", "suspended"])
async def test_the_slot_of_a_stopped_job_is_free_once(at: str) -> None:
    steps = Steps(1)
    steps.queue(*("a", "b"), paused=at == "waiting", parts=2)
    steps.queue("x", "y", "z")
    await settled()
    if at == "suspended":
        await steps.end("a")
    steps.running[0].cancel()
    await asyncio.wait(steps.running[:1])
    await settled()
    steps.queue("p", "q")
    others = [name for name in steps.started if name != "a"]
    assert others == ["x"]
    for name in ("x", "p", "y", "q", "z"):
        await steps.end(name)
        others = [name for name in steps.started if name != "a" and not steps.ends[name].is_set()]
        assert len(others) <= 1
    assert [name for name in steps.started if name != "a"] == ["x", "p", "y", "q", "z"]


async def test_a_failed_job_gives_its_slots_back() -> None:
    steps = Steps(2)

    async def fail() -> None:
        raise LookupError("gone")

    failing = StepQueue(steps.scheduler, "job", LOCAL.id)
    failing.add((0,), partial(steps.step, failing, "a", 1))
    failing.add((1,), fail)
    failing.add((2,), partial(steps.step, failing, "never", 1))
    with pytest.raises(LookupError):
        await failing.run()
    steps.queue("x", "y", "z")
    await settled()
    assert steps.started == ["a", "x", "y"]


async def test_steps_run_in_the_context_of_their_own_job() -> None:
    scheduler, seen = StepScheduler(1), []

    async def note() -> None:
        seen.append(JOB.get())

    async def run(job: str) -> None:
        JOB.set(job)
        queue = StepQueue(scheduler, "job", LOCAL.id)
        queue.add((0,), note)
        queue.add((1,), note)
        await queue.run()

    await asyncio.gather(run("one"), run("two"))
    assert seen == ["one", "two", "one", "two"]
