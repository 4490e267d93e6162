import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from mistify_server.engines.base import TaskEngine
from mistify_server.engines.local import LocalEngine
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import AdaptTask, InspectTask
from tests.mistify_server.engines.calls import Make
from tests.mistify_server.engines.starting import patiently

# Ray reads this once when it is imported, and would otherwise write a token into the home directory.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def recipe(site: Any, train: str, test: str) -> Recipe:
    return Recipe(
        model=ModelSource(path=str(site.root / "model.json")),
        data=DataSource(train=train, test=test),
        algorithm="morphnet",
        settings={},
        hardware={},
        seed=0,
    )


def adapt(site: Any, data: str = "d", **budget: float) -> AdaptTask:
    parent = artifacts_of(site.store).put(b'{"flops": 100, "params": 100}', ".json")
    return AdaptTask(
        recipe=recipe(site, data, data).taught_by(parent),
        parent=parent,
        budget=budget or {"flops": 50.0},
    )


def inspect(site: Any) -> InspectTask:
    return InspectTask(recipe=recipe(site, str(site.root / "train.json"), ""))


@pytest.fixture
def adapt_task() -> Callable[..., AdaptTask]:
    return adapt


@pytest.fixture
def inspect_task() -> Callable[..., InspectTask]:
    return inspect


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
