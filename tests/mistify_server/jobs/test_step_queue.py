import asyncio
import time
from contextvars import ContextVar
from functools import partial

import pytest

from mistify.jobs.job import JobPriority
from mistify_server.identity.callers import DEFAULT_TENANT, LOCAL, CallerId
from mistify_server.jobs.step_queue import StepQueue, StepScheduler

JOB: ContextVar[str] = ContextVar("JOB")


async def settled() -> None:
    """Return once the event loop has nothing left to do: no step here waits for anything but the others."""
    for _ in range(20):
        await asyncio.sleep(0)


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


def running(steps: Steps, caller: str) -> int:
    """Return the number of a caller's steps in progress."""
    return steps.scheduler.running(CallerId(DEFAULT_TENANT, caller))


async def one_by_one(steps: Steps, count: int) -> list[str]:
    """End each step as soon as it has started, and return the first ones in the order of their starts."""
    for number in range(count):
        await settled()
        await steps.end(steps.started[number])
    return steps.started[:count]


async def test_steps_of_a_higher_priority_start_first() -> None:
    steps = Steps(1)
    low = steps.queue("a", "b", priority=JobPriority.LOW)
    steps.queue("m", "n")
    steps.queue("x", "y", priority=JobPriority.HIGH)
    assert await one_by_one(steps, 2) == ["x", "y"]
    low.priority = JobPriority.HIGH  # "m" is already in progress
    assert await one_by_one(steps, 6) == ["x", "y", "m", "a", "b", "n"]


async def test_no_step_starts_before_all_expected_jobs_are_there() -> None:
    steps = Steps(1)
    steps.scheduler.expect(["low", "high", "broken"])
    steps.queue("a", job_id="low", priority=JobPriority.LOW)
    await settled()
    steps.queue("x", job_id="high", priority=JobPriority.HIGH)
    await settled()
    assert steps.started == []
    steps.scheduler.dismiss("broken")
    assert await one_by_one(steps, 2) == ["x", "a"]


async def test_a_caller_with_a_hundred_jobs_does_not_starve_another() -> None:
    steps = Steps(1)
    for number in range(100):
        steps.queue(f"many-{number}", caller="many")
    await settled()
    steps.queue("one-0", "one-1", "one-2", caller="one")
    steps.queue("two-0", "two-1", caller="two")
    assert await one_by_one(steps, 10) == [
        "many-0",
        *("one-0", "two-0", "many-1"),
        *("one-1", "two-1", "many-2"),
        *("one-2", "many-3", "many-4"),
    ]


async def test_slots_are_shared_between_callers_and_then_between_their_jobs() -> None:
    steps = Steps(4)
    for job in ("a", "b"):
        steps.queue(*(f"many-{job}-{number}" for number in range(9)), caller="many")
    steps.queue(*(f"one-{number}" for number in range(9)), caller="one")
    await settled()
    assert sorted(steps.started) == ["many-a-0", "many-b-0", "one-0", "one-1"]
    for name in ("one-0", "many-b-0", "many-a-0"):
        await steps.end(name)
    assert steps.started[4:] == ["one-2", "many-b-1", "many-a-1"]


async def test_tenants_share_slots_whatever_their_callers_and_priorities() -> None:
    steps = Steps(1)
    for number in range(9):
        steps.queue(f"many-{number}", caller=f"token-{number}", tenant="many", priority=JobPriority.HIGH)
    await settled()
    steps.queue("low", caller="ci", tenant="one", priority=JobPriority.LOW)
    steps.queue("high", caller="ci", tenant="one", priority=JobPriority.HIGH)
    steps.queue("same name", caller="ci", tenant="two")
    assert await one_by_one(steps, 7) == [
        "many-0",
        *("high", "same name", "many-1"),
        *("low", "many-2", "many-3"),
    ]


async def test_callers_of_the_same_name_are_others_in_other_tenants() -> None:
    steps = Steps(4)
    steps.queue("a", "b", caller="ci", tenant="one")
    steps.queue("x", caller="ci", tenant="two")
    await settled()
    assert [steps.scheduler.running(CallerId(tenant, "ci")) for tenant in ("one", "two")] == [2, 1]


async def test_callers_with_nothing_to_do_leave_their_slots_to_others() -> None:
    steps = Steps(2)
    steps.queue("a", "b", "c", caller="many")
    await settled()
    assert steps.started == ["a", "b"]
    steps.queue("x", "y", caller="one")
    await steps.end("a")
    assert steps.started == ["a", "b", "x"]


async def test_a_long_step_makes_way_for_a_higher_priority_at_its_checkpoint() -> None:
    steps = Steps(1)
    steps.queue("long", parts=2)
    await settled()
    steps.queue("urgent", priority=JobPriority.HIGH)
    assert await steps.end("long") == ["long", "urgent"]
    assert await steps.end("urgent") == ["long", "urgent", "long.1"]


async def test_steps_beyond_the_limit_of_a_caller_wait() -> None:
    limits = {"many": 1}
    steps = Steps(3, limits)
    steps.queue("a", "b", caller="many", priority=JobPriority.HIGH)
    steps.queue("c", caller="many")
    steps.queue("x", caller="one")
    await settled()
    assert steps.started == ["a", "x"]
    assert [running(steps, name) for name in ("many", "one", "none")] == [1, 1, 0]
    assert await steps.end("a") == ["a", "x", "b"]
    limits["many"] = 2
    steps.scheduler.wake()
    await settled()
    assert steps.started == ["a", "x", "b", "c"]
    limits["many"] = 1
    assert await steps.end("c") == ["a", "x", "b", "c"]
    assert running(steps, "many") == 1
