import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mistify_server.engines.local import ATTEMPTS, DEADLINES, LocalEngine
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks import (
    AdaptResult,
    AdaptTask,
    DataSource,
    Inspection,
    InspectTask,
    ModelSource,
    Progress,
    Task,
    TaskFailure,
)


def adapt(site: Any, data: str = "d") -> AdaptTask:
    parent = artifacts_of(site.store).put(b'{"flops": 100}', ".json")
    return AdaptTask(
        parent=parent,
        teacher=parent,
        data=DataSource(train=data, test=data),
        algorithm="morphnet",
        algorithm_config={},
        hardware={},
        budget={"flops": 50.0},
        accuracy_target=None,
        seed=0,
    )


def inspect(site: Any) -> InspectTask:
    return InspectTask(
        model=ModelSource(path=str(site.root / "model.json")),
        data=DataSource(train=str(site.root / "train.json"), test=""),
        algorithm="morphnet",
        algorithm_config={},
        hardware={},
    )


def ignore(_progress: Progress) -> None:
    pass


@pytest.fixture
async def engine(site: Any) -> AsyncIterator[LocalEngine]:
    (site.store / "logs").mkdir()
    made = LocalEngine(site.worker, site.store / "logs", slots=2)
    yield made
    await made.close()


async def test_a_task_is_answered_and_its_progress_told(engine: LocalEngine, site: Any) -> None:
    told: list[Progress] = []
    result = await engine.run(adapt(site), told.append)
    assert isinstance(result, AdaptResult)
    assert result.costs == {"flops": 50.0}
    assert [progress.stage for progress in told] == ["starting", "in adapt"]


async def test_a_worker_is_kept_for_the_next_task(engine: LocalEngine, site: Any) -> None:
    for _ in range(3):
        await engine.run(adapt(site), ignore)
    assert len({task["pid"] for task in site.tasks("adapt")}) == 1


async def test_a_task_goes_where_its_data_is_loaded(engine: LocalEngine, site: Any) -> None:
    tasks = [adapt(site, data) for data in ("one", "two")]
    await asyncio.gather(*(engine.run(task, ignore) for task in tasks))
    for task in reversed(tasks):
        await engine.run(task, ignore)
    pids = {
        data: {t["pid"] for t in site.tasks("adapt") if t["data"]["train"] == data} for data in ("one", "two")
    }
    assert all(len(seen) == 1 for seen in pids.values())
    assert pids["one"] != pids["two"]


async def test_a_worker_that_dies_costs_another_attempt(engine: LocalEngine, site: Any) -> None:
    (site.control / "crash-adapt").write_text("2")
    assert isinstance(await engine.run(adapt(site), ignore), AdaptResult)
    assert len({task["pid"] for task in site.tasks("adapt")}) == 3


async def test_a_worker_that_dies_again_and_again_fails_the_task(engine: LocalEngine, site: Any) -> None:
    (site.control / "crash-adapt").write_text("9")
    result = await engine.run(adapt(site), ignore)
    assert isinstance(result, TaskFailure)
    assert result.code == "INTERNAL"
    assert "SIGKILL" in result.message
    assert result.message.endswith("these are my last words")
    assert len(site.tasks("adapt")) == ATTEMPTS


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('hello')", "no answer: b'hello"),
        ("print('x' * 5_000_000)", "more than 4,194,304 bytes"),
        ("import sys; sys.exit('no tensorflow')", "exit code 1\nno tensorflow"),
    ],
)
async def test_a_worker_that_talks_nonsense_fails_the_task(
    site: Any, tmp_path: Path, program: str, message: str
) -> None:
    engine = LocalEngine([sys.executable, "-c", program], tmp_path)
    result = await engine.run(adapt(site), ignore)
    await engine.close()
    assert isinstance(result, TaskFailure)
    assert message in result.message


async def test_a_task_has_a_deadline(site: Any, tmp_path: Path) -> None:
    (site.control / "hold-adapt").touch()
    engine = LocalEngine(site.worker, tmp_path, deadlines={**DEADLINES, "adapt": 1.0})
    result = await engine.run(adapt(site), ignore)
    await engine.close()
    assert isinstance(result, TaskFailure)
    assert "more than 1 s" in result.message


async def test_to_cancel_a_task_ends_its_worker(
    engine: LocalEngine, site: Any, wait_until: Callable[[Callable[[], bool]], Any]
) -> None:
    (site.control / "hold-adapt").touch()
    running = asyncio.create_task(engine.run(adapt(site), ignore))
    await wait_until(lambda: bool(site.tasks("adapt")))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not Path(f"/proc/{site.tasks('adapt')[0]['pid']}").exists()
    (site.control / "hold-adapt").unlink()
    assert isinstance(await engine.run(adapt(site), ignore), AdaptResult)


async def test_an_inspection_does_not_wait_for_training(engine: LocalEngine, site: Any) -> None:
    (site.control / "hold-adapt").touch()
    training: list[asyncio.Task[Any]] = [
        asyncio.create_task(engine.run(adapt(site), ignore)) for _ in range(3)
    ]
    task: Task = inspect(site)
    results = await asyncio.gather(engine.run(task, ignore), engine.run(task, ignore))
    assert all(isinstance(result, Inspection) for result in results)
    assert not any(task.done() for task in training)
    (site.control / "hold-adapt").unlink()
    await asyncio.gather(*training)


async def test_a_long_log_is_cut(engine: LocalEngine, site: Any) -> None:
    logs = [site.store / "logs" / f"worker-{number}.log" for number in range(2)]
    for log in logs:
        log.write_bytes(b"old\n" * 500_000)
    await engine.run(adapt(site), ignore)
    assert min(log.stat().st_size for log in logs) == 2**19


async def test_no_worker_outlives_its_engine(engine: LocalEngine, site: Any) -> None:
    await engine.run(adapt(site), ignore)
    await engine.close()
    assert not Path(f"/proc/{site.tasks('adapt')[0]['pid']}").exists()
