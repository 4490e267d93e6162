"""Contract tests for every engine, with real worker processes that do no work."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mistify.jobs.job import ProgressUpdate
from mistify_server.engines.base import TaskEngine
from mistify_server.engines.local import LocalEngine
from mistify_server.engines.pooled_engine import ATTEMPTS, DEADLINES, LEASES
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.results import AdaptResult, Inspection, Result, TaskFailure
from mistify_server.tasks.tasks import Task
from tests.mistify_server.engines.starting import patiently
from tests.mistify_server.recipes import by_recipe

Make = Callable[..., TaskEngine]
Until = Callable[[Callable[[], bool]], Any]

REPEATS_ITSELF = """
import json, sys
said = ""
for line in sys.stdin:
    order = json.loads(line)
    content = {"kind": "failure", "code": "INTERNAL", "message": order["task"]["recipe"]["data"]["train"]}
    last, said = said, json.dumps({"kind": "answer", "ticket": order["ticket"], "result": content})
    print(last, said, sep="\\n" if last else "", flush=True)
"""


def ignore(_progress: ProgressUpdate) -> None:
    pass


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def pids(site: Any, kind: str = "adapt") -> list[int]:
    return [task["pid"] for task in site.tasks(kind)]


def submit(engine: TaskEngine, *tasks: Task) -> list[asyncio.Task[Result]]:
    return [asyncio.create_task(engine.run(task, ignore)) for task in tasks]


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray is not installed")

    def start() -> None:
        try:
            ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        except Exception:
            ray.shutdown()
            raise

    patiently(start)
    yield
    ray.shutdown()


@pytest.fixture(params=["local", "ray"])
async def make(request: pytest.FixtureRequest, site: Any) -> AsyncIterator[Make]:
    (site.store / "logs").mkdir()
    made: list[TaskEngine] = []

    def make(command: list[str] | None = None, **settings: Any) -> TaskEngine:
        command = command or site.worker
        if request.param == "local":
            made.append(LocalEngine(command, site.store / "logs", **settings))
        else:
            from mistify_server.engines.ray import RayEngine

            made.append(RayEngine(site.store, command, **settings))
        return made[-1]

    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    yield make
    for engine in made:
        await engine.close()


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


@pytest.mark.sampled
@pytest.mark.parametrize("disaster", ["crash", pytest.param("exhaust", marks=pytest.mark.slow)])
async def test_the_death_of_a_worker_only_retries_its_own_task(
    make: Make, site: Any, adapt_task: Any, wait_until: Until, disaster: str
) -> None:
    (site.control / "hold-adapt-1").touch()
    (site.control / f"{disaster}-adapt-2").write_text("2")
    engine = make(slots=2)
    (other,) = submit(engine, adapt_task(site, flops=1.0))
    await wait_until(lambda: bool(pids(site)))
    reported: list[ProgressUpdate] = []
    assert isinstance(await engine.run(adapt_task(site, flops=2.0), reported.append), AdaptResult)
    ended = {"crash": "was killed by signal SIGKILL", "exhaust": "ended with exit code 12"}[disaster]
    assert [progress.stage for progress in reported] == [
        "starting",
        "in adapt",
        f"attempt 1 of 3 failed: the worker {ended}",
        "starting",
        "in adapt",
        f"attempt 2 of 3 failed: the worker {ended}",
        "starting",
        "in adapt",
        "adapting",
    ]
    (site.control / "hold-adapt-1").unlink()
    assert isinstance(await other, AdaptResult)
    assert [task["budget"]["flops"] for task in site.tasks("adapt")] == [1.0, 2.0, 2.0, 2.0]
    assert len(set(pids(site))) == 4


@pytest.mark.sampled
async def test_a_stopped_worker_is_replaced_when_its_lease_expires(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    for budget in (1, 2):
        (site.control / f"hold-adapt-{budget}").touch()
    engine = make(slots=2, leases={**LEASES, "adapt": 20.0})
    silent, busy = submit(engine, *(adapt_task(site, flops=budget) for budget in (1.0, 2.0)))
    await wait_until(lambda: len(pids(site)) == 2)
    stopped = next(task["pid"] for task in site.tasks("adapt") if task["budget"]["flops"] == 1.0)
    os.kill(stopped, signal.SIGSTOP)
    (site.control / "hold-adapt-1").unlink()
    assert isinstance(await silent, AdaptResult)
    assert gone(stopped)
    # The other worker has been busy for more than a lease by now, sending heartbeats all the time.
    assert not busy.done()
    (site.control / "hold-adapt-2").unlink()
    assert isinstance(await busy, AdaptResult)
    assert sorted(task["budget"]["flops"] for task in site.tasks("adapt")) == [1.0, 1.0, 2.0]


@pytest.mark.sampled
@pytest.mark.parametrize(("disaster", "cause"), [("crash", "SIGKILL, probably"), ("exhaust", "ran out of")])
async def test_a_model_that_kills_its_workers_is_blamed_unless_it_was_loaded_before(
    make: Make, site: Any, adapt_task: Any, disaster: str, cause: str
) -> None:
    (site.control / "load-adapt").touch()
    (site.control / f"{disaster}-adapt").write_text("3")
    engine = make()
    result = await engine.run(adapt_task(site), ignore)
    assert isinstance(result, TaskFailure)
    assert result.code == "INVALID_MODEL"
    (problem,) = result.problems
    assert problem.place == "model"
    assert cause in problem.value
    assert "memory" in problem.fix
    assert len(pids(site)) == 3
    (site.control / f"{disaster}-adapt").write_text("2")
    assert isinstance(await engine.run(adapt_task(site), ignore), AdaptResult)
    (site.control / f"{disaster}-adapt").write_text("3")
    result = await engine.run(adapt_task(site), ignore)
    assert isinstance(result, TaskFailure)
    assert (result.code, result.problems) == ("INTERNAL", ())


@pytest.mark.sampled
async def test_a_worker_that_aborts_is_replaced_by_one_without_onednn(
    make: Make, site: Any, adapt_task: Any
) -> None:
    (site.control / "abort-adapt").write_text("9")
    engine = make()
    reported: list[ProgressUpdate] = []
    result = await engine.run(adapt_task(site), reported.append)
    assert isinstance(result, AdaptResult)
    assert not result.onednn
    failed = next(progress.stage for progress in reported if "failed" in progress.stage)
    assert "SIGABRT; the next one runs without TensorFlow's oneDNN" in failed
    # Tasks on the same model, or derived from it, start without oneDNN.
    child = adapt_task(site).model_copy(update={"parent": result.checkpoint})
    for task in (adapt_task(site), child):
        assert not (await engine.run(task, ignore)).onednn  # type: ignore[union-attr]
    assert [task["onednn"] for task in site.tasks("adapt")] == ["1", "0", "0", "0"]
    # Other tasks still use oneDNN.
    parent = artifacts_of(site.store).put(b'{"flops": 90, "params": 90}', ".json")
    other = by_recipe(adapt_task(site).model_copy(update={"parent": parent}), teacher=parent)
    await engine.run(other, ignore)
    assert [task["onednn"] for task in site.tasks("adapt")][4:6] == ["1", "0"]


@pytest.mark.sampled
async def test_a_model_that_never_finishes_loading_is_reported_after_the_time_limit(
    make: Make, site: Any, adapt_task: Any, inspect_task: Any
) -> None:
    engine = make(deadlines={**DEADLINES, "adapt": 2.0})
    await engine.run(inspect_task(site), ignore)  # start the worker, which takes long
    for name in ("load-adapt", "hold-adapt"):
        (site.control / name).touch()
    result = await engine.run(adapt_task(site), ignore)
    assert isinstance(result, TaskFailure)
    assert (result.code, result.message) == ("INVALID_MODEL", "the model took more than 2 s to load")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("disaster", "reported"),
    [
        ("crash", ["signal SIGKILL, probably because it ran out of memory", "fewer --slots"]),
        ("exhaust", ["the worker ran out of memory", "fewer --slots"]),
    ],
)
async def test_a_task_fails_if_its_workers_die_repeatedly(
    make: Make, site: Any, adapt_task: Any, disaster: str, reported: list[str]
) -> None:
    (site.control / f"{disaster}-adapt").write_text("9")
    result = await make().run(adapt_task(site), ignore)
    assert isinstance(result, TaskFailure)
    assert result.code == "INTERNAL"
    assert result.message.startswith(f"adapting the network by morphnet failed {ATTEMPTS} times: the worker")
    assert all(text in result.message for text in reported)
    assert "worker-0.log" in result.message
    assert "last words" not in result.message
    assert "\n" not in result.message
    assert len(site.tasks("adapt")) == ATTEMPTS


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('hello')", "an invalid line: b'hello"),
        pytest.param("print('x' * 5_000_000)", "more than 4,194,304 bytes", marks=pytest.mark.slow),
        (
            "import sys; sys.exit('no tensorflow')",
            "exit code 1; try again; see the server's log worker-0.log",
        ),
    ],
)
async def test_an_invalid_answer_of_a_worker_fails_the_task(
    make: Make, site: Any, adapt_task: Any, program: str, message: str
) -> None:
    result = await make([sys.executable, "-c", program]).run(adapt_task(site), ignore)
    assert isinstance(result, TaskFailure)
    assert message in result.message


@pytest.mark.sampled
async def test_a_task_is_not_blamed_if_no_worker_can_be_started(
    make: Make, site: Any, adapt_task: Any
) -> None:
    result = await make(["/no/such/program"]).run(adapt_task(site), ignore)
    assert isinstance(result, TaskFailure)
    assert result.code == "UNAVAILABLE"
    assert "could not be started" in result.message


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("params", "message"),
    [
        (13.0, "13 parameters bring bad luck"),
        (17.0, "ValueError: 17 parameters are odd"),
        (19.0, "the loss became nan in step 3"),
    ],
)
async def test_a_task_that_fails_with_an_error_is_not_retried(
    make: Make, site: Any, adapt_task: Any, params: float, message: str
) -> None:
    engine = make()
    result = await engine.run(adapt_task(site, params=params), ignore)
    assert result == TaskFailure(code="INTERNAL", message=message)
    assert isinstance(await engine.run(adapt_task(site), ignore), AdaptResult)
    assert len(pids(site)) == 2
    assert len(set(pids(site))) == 1


async def test_the_traceback_of_an_exception_is_logged(make: Make, site: Any, adapt_task: Any) -> None:
    await make().run(adapt_task(site, params=17.0), ignore)
    log = (site.store / "logs" / "worker-0.log").read_text()
    assert "Traceback" in log
    assert "scripted_worker.py" in log


@pytest.mark.sampled
async def test_a_task_has_a_deadline(make: Make, site: Any, adapt_task: Any, inspect_task: Any) -> None:
    engine = make(deadlines={**DEADLINES, "adapt": 1.0})
    await engine.run(inspect_task(site), ignore)  # start the worker, which takes long
    (site.control / "hold-adapt").touch()
    result = await engine.run(adapt_task(site), ignore)
    assert isinstance(result, TaskFailure)
    assert "more than 1 s" in result.message
    (pid,) = pids(site)
    assert gone(pid)


async def test_a_late_result_is_refused(make: Make, site: Any, adapt_task: Any) -> None:
    engine = make([sys.executable, "-c", REPEATS_ITSELF])
    results = [await engine.run(adapt_task(site, data), ignore) for data in ("one", "two", "three")]
    messages = [result.message for result in results if isinstance(result, TaskFailure)]
    assert messages == ["one", "two", "three"]


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


async def test_a_worker_that_died_while_idle_does_not_count_as_an_attempt(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    engine = make()
    await engine.run(adapt_task(site), ignore)
    os.kill(pids(site)[0], signal.SIGKILL)
    await wait_until(lambda: gone(pids(site)[0]))
    reported: list[ProgressUpdate] = []
    assert isinstance(await engine.run(adapt_task(site), reported.append), AdaptResult)
    assert [progress.stage for progress in reported] == ["starting", "in adapt", "adapting"]


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
