"""Workers on a machine that has temporarily run out of file descriptors."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from mistify.jobs.job import ProgressUpdate
from mistify_server.engines import pooled_engine
from mistify_server.engines.local import LocalEngine
from mistify_server.tasks.results import AdaptResult, TaskFailure
from tests.support.disks import no_more_files


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_engine, "_ROOM_SECONDS", 0.01)


async def test_a_task_waits_until_its_dead_worker_can_be_replaced(
    site: Any, adapt_task: Any, wait_until: Callable[[Callable[[], bool]], Any]
) -> None:
    (site.store / "logs").mkdir()
    (site.control / "hold-adapt").touch()
    engine = LocalEngine(site.worker, site.store / "logs")
    reported: list[ProgressUpdate] = []
    running = asyncio.create_task(engine.run(adapt_task(site), reported.append))
    await wait_until(lambda: len(site.tasks("adapt")) == 1)
    (killed,) = (task["pid"] for task in site.tasks("adapt"))
    with no_more_files():
        os.kill(killed, signal.SIGKILL)
        await wait_until(lambda: reported[-1].stage.startswith("waiting until a worker can be started"))
    (site.control / "hold-adapt").unlink()
    assert isinstance(await running, AdaptResult)
    assert "Too many open files" in next(one.stage for one in reported if "waiting" in one.stage)
    assert len(site.tasks("adapt")) == 2
    await engine.close()


async def test_a_waiting_inspection_gets_an_error(site: Any, inspect_task: Any) -> None:
    (site.store / "logs").mkdir()
    engine = LocalEngine(site.worker, site.store / "logs")
    with no_more_files():
        result = await engine.run(inspect_task(site), lambda progress: None)
    assert isinstance(result, TaskFailure)
    assert result.code == "UNAVAILABLE"
    assert result.message.startswith("inspecting the model model.json failed 1 time: the worker could not be")
    await engine.close()
