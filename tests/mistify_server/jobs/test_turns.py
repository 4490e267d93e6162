"""Tenants, priorities, callers and jobs take turns at starting steps."""

from mistify.jobs.job import JobPriority
from mistify_server.identity.callers import DEFAULT_TENANT, CallerId
from tests.mistify_server.jobs.steps import Steps, settled


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
