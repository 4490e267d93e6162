"""Contract tests for every engine, with real worker processes that do no work."""

import asyncio
from typing import Any

import pytest

from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.results import AdaptResult, Inspection
from tests.mistify_server.engines.calls import Make, Until, gone, ignore, pids, submit


async def test_a_task_returns_its_result_and_reports_progress(make: Make, site: Any, adapt_task: Any) -> None:
    reported: list[ProgressUpdate] = []
    result = await make().run(adapt_task(site), reported.append)
    assert isinstance(result, AdaptResult)
    assert result.costs == {"flops": 50.0, "params": 100.0}
    assert [progress.stage for progress in reported] == ["starting", "in adapt", "adapting"]


async def test_a_worker_is_reused_for_the_next_task(make: Make, site: Any, adapt_task: Any) -> None:
    engine = make(slots=2)
    for _ in range(3):
        await engine.run(adapt_task(site), ignore)
    assert len(set(pids(site))) == 1


async def test_a_worker_started_in_advance_takes_the_first_task(
    make: Make, site: Any, inspect_task: Any, wait_until: Until
) -> None:
    engine = make(slots=1)
    engine.start_worker()
    engine.start_worker()
    await engine.run(inspect_task(site), ignore)
    await engine.run(inspect_task(site), ignore)
    assert len(set(pids(site, "inspect"))) == 1
    assert (engine.load.alive, engine.load.busy) == (1, 0)
    idle = make(slots=2)
    idle.start_worker()
    await wait_until(lambda: idle.load.alive == 1)
    assert (idle.load.busy, idle.load.waiting) == (0, 0)


async def test_a_task_goes_to_the_worker_that_has_loaded_its_data(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    (site.control / "hold-adapt").touch()
    engine = make(slots=2)
    tasks = [adapt_task(site, data) for data in ("one", "two")]
    running = submit(engine, *tasks)
    await wait_until(lambda: len(pids(site)) == 2)
    (site.control / "hold-adapt").unlink()
    await asyncio.gather(*running)
    for task in reversed(tasks):
        await engine.run(task, ignore)
    seen = {
        data: {t["pid"] for t in site.tasks("adapt") if t["recipe"]["data"]["train"] == data}
        for data in ("one", "two")
    }
    assert all(len(workers) == 1 for workers in seen.values())
    assert seen["one"] != seen["two"]


async def test_tasks_run_in_parallel_up_to_the_number_of_slots(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    for budget in (1, 2, 3):
        (site.control / f"hold-adapt-{budget}").touch()
    engine = make(slots=2)
    assert engine.slots == 2
    running = submit(engine, *(adapt_task(site, flops=budget) for budget in (1.0, 2.0, 3.0)))
    await wait_until(lambda: len(pids(site)) == 2)
    (site.control / "hold-adapt-2").unlink()
    await running[1]
    await wait_until(lambda: len(pids(site)) == 3)
    assert [task["budget"]["flops"] for task in site.tasks("adapt")[2:]] == [3.0]
    assert len(set(pids(site))) == 2
    for budget in (1, 3):
        (site.control / f"hold-adapt-{budget}").unlink()
    await asyncio.gather(*running)


async def test_tasks_run_in_the_order_of_their_arrival(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    (site.control / "hold-adapt-1").touch()
    engine = make(slots=1)

    async def one_after_the_other(*budgets: float) -> None:
        for budget in budgets:
            await engine.run(adapt_task(site, flops=budget), ignore)

    first = asyncio.create_task(one_after_the_other(1.0, 2.0, 3.0))
    await wait_until(lambda: bool(pids(site)))
    (second,) = submit(engine, adapt_task(site, flops=4.0))
    await asyncio.sleep(0)
    (site.control / "hold-adapt-1").unlink()
    await asyncio.gather(first, second)
    assert [task["budget"]["flops"] for task in site.tasks("adapt")] == [1.0, 4.0, 2.0, 3.0]


async def test_cancelling_a_task_ends_its_worker(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    (site.control / "hold-adapt").touch()
    engine = make()
    (running,) = submit(engine, adapt_task(site))
    await wait_until(lambda: bool(pids(site)))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gone(pids(site)[0])
    (site.control / "hold-adapt").unlink()
    assert isinstance(await engine.run(adapt_task(site), ignore), AdaptResult)


async def test_an_inspection_does_not_wait_for_training(
    make: Make, site: Any, adapt_task: Any, inspect_task: Any, wait_until: Until
) -> None:
    (site.control / "hold-adapt").touch()
    engine = make(slots=2)
    training = submit(engine, *(adapt_task(site) for _ in range(3)))
    await wait_until(lambda: len(pids(site)) == 2)
    results = await asyncio.gather(*submit(engine, inspect_task(site), inspect_task(site)))
    assert all(isinstance(result, Inspection) for result in results)
    assert len(set(pids(site, "inspect"))) == 1  # kept for the next inspection
    assert engine.load.alive == 3
    assert not any(task.done() for task in training)
    (site.control / "hold-adapt").unlink()
    await asyncio.gather(*training)


async def test_a_worker_for_inspections_is_started_in_advance(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    (site.control / "hold-adapt").touch()
    engine = make()
    engine.keep_ready()
    assert engine.load.alive == 0
    training = submit(engine, adapt_task(site))
    await wait_until(lambda: engine.load.alive == 2)
    assert engine.load.busy == 1
    (site.control / "hold-adapt").unlink()
    await asyncio.gather(*training)


async def test_the_worker_of_an_inspection_continues_with_training(
    make: Make, site: Any, adapt_task: Any, inspect_task: Any
) -> None:
    engine = make()
    await engine.run(inspect_task(site), ignore)
    await engine.run(adapt_task(site), ignore)
    assert pids(site, "inspect") == pids(site)


async def test_a_long_log_is_truncated(make: Make, site: Any, adapt_task: Any) -> None:
    log = site.store / "logs" / "worker-0.log"
    log.write_bytes(b"old\n" * 500_000)
    await make().run(adapt_task(site), ignore)
    assert log.stat().st_size == 2**19


async def test_workers_end_with_their_engine(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    (site.control / "hold-adapt-1").touch()
    engine = make(slots=2)
    busy, idle = submit(engine, adapt_task(site, flops=1.0), adapt_task(site, flops=2.0))
    await idle
    await wait_until(lambda: len(pids(site)) == 2)
    busy.cancel()
    await engine.close()
    assert all(map(gone, pids(site)))
