"""Contract tests for every engine: workers that die, hang or answer nonsense, and tasks that fail."""

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest

from mistify.jobs.job import ProgressUpdate
from mistify_server.engines.pooled_engine import ATTEMPTS, DEADLINES, LEASES
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.messages import LOADING
from mistify_server.tasks.results import AdaptResult, TaskFailure
from tests.mistify_server.engines.calls import Make, Until, gone, ignore, pids, submit
from tests.mistify_server.recipes import by_recipe
from tests.support.memory import memory_limited

REPEATS_ITSELF = """
import json, sys
answer = ""
for line in sys.stdin:
    order = json.loads(line)
    content = {"kind": "failure", "code": "INTERNAL", "message": order["task"]["recipe"]["data"]["train"]}
    last, answer = answer, json.dumps({"kind": "answer", "ticket": order["ticket"], "result": content})
    print(last, answer, sep="\\n" if last else "", flush=True)
"""


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
async def test_a_worker_beyond_its_memory_limit_is_replaced_and_others_go_on(
    make: Make, site: Any, adapt_task: Any, wait_until: Until
) -> None:
    for budget in (1, 2):
        (site.control / f"hold-adapt-{budget}").touch()
    (site.control / "devour-adapt-2").write_text("1")
    engine = make(slots=2)
    (other,) = submit(engine, adapt_task(site, flops=1.0))
    reported: list[ProgressUpdate] = []
    limited = asyncio.create_task(engine.run(adapt_task(site, flops=2.0), reported.append))
    await wait_until(lambda: len(pids(site)) == 2)
    process = next(task["pid"] for task in site.tasks("adapt") if task["budget"]["flops"] == 2.0)
    with memory_limited(process, 2**28):
        (site.control / "hold-adapt-2").unlink()
        assert isinstance(await limited, AdaptResult)
    failures = [progress.stage for progress in reported if "failed" in progress.stage]
    assert failures == ["attempt 1 of 3 failed: the worker was killed by signal SIGKILL"]
    assert not other.done()
    (site.control / "hold-adapt-1").unlink()
    assert isinstance(await other, AdaptResult)
    assert sorted(task["budget"]["flops"] for task in site.tasks("adapt")) == [1.0, 2.0, 2.0]


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
    monkeypatch: pytest.MonkeyPatch, make: Make, site: Any, adapt_task: Any
) -> None:
    """The event loop's clock reaches the limit as soon as the model is loading, however long that takes."""
    loop, limit = asyncio.get_running_loop(), 3600.0
    for name in ("load-adapt", "hold-adapt"):
        (site.control / name).touch()

    def pass_limit(progress: ProgressUpdate) -> None:
        if progress.stage == LOADING:
            monkeypatch.setattr(loop, "time", lambda: time.monotonic() + limit)

    engine = make(deadlines={**DEADLINES, "adapt": limit}, leases={**LEASES, "adapt": 2 * limit})
    result = await engine.run(adapt_task(site), pass_limit)
    assert isinstance(result, TaskFailure)
    assert (result.code, result.message) == ("INVALID_MODEL", "the model took more than 3,600 s to load")
    assert "less busy" in result.problems[0].fix


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
    (pid,) = pids(site, "inspect")  # a slow machine may not have begun the other task within a second
    assert gone(pid)


async def test_a_late_result_is_refused(make: Make, site: Any, adapt_task: Any) -> None:
    engine = make([sys.executable, "-c", REPEATS_ITSELF])
    results = [await engine.run(adapt_task(site, data), ignore) for data in ("one", "two", "three")]
    messages = [result.message for result in results if isinstance(result, TaskFailure)]
    assert messages == ["one", "two", "three"]


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
