"""Inspections are repeated only if something has changed."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mistify.errors import Problem
from mistify.plugins import installed as installed_packages
from mistify_server.identity.callers import LOCAL, Caller
from mistify_server.planning.known_inspections import KnownInspections
from mistify_server.planning.known_inspections import _code_of_plug_ins as code_of_plug_ins
from mistify_server.store.file_digests import FileDigests
from mistify_server.store.inspections import KeptInspections
from mistify_server.tasks import code
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.results import Inspection, Result, TaskFailure
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import InspectTask
from tests.mistify_server.recipes import by_recipe
from tests.support.callers import called_by
from tests.support.paths import REPOSITORY
from tests.support.plug_ins import LAYERS, installed

INSPECTION = Inspection(costs={"flops": 2.0}, floor={"flops": 1.0})


class Inspector:
    """An inspector that counts its inspections."""

    def __init__(self, result: Result = INSPECTION, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self._result = result
        self._meanwhile = meanwhile

    async def __call__(self) -> Result:
        self.count += 1
        await asyncio.sleep(0)
        self._meanwhile()
        return self._result


@pytest.fixture
def known(tmp_path: Path) -> Iterator[KnownInspections]:
    with called_by(LOCAL):
        yield KnownInspections(KeptInspections(tmp_path / "inspections"))


@pytest.fixture
def task(tmp_path: Path) -> InspectTask:
    """Return a task for a model that is a directory, and two data files."""
    (tmp_path / "model" / "variables").mkdir(parents=True)
    (tmp_path / "model" / "variables" / "data").write_bytes(b"weights")
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("a,b")
    recipe = Recipe(
        model=ModelSource(path=str(tmp_path / "model")),
        data=DataSource(train=str(tmp_path / "train.csv"), test=str(tmp_path / "test.csv")),
        algorithm="auto",
        settings={"seed": 1},
        hardware={},
        seed=0,
    )
    return InspectTask(recipe=recipe)


async def test_identical_content_is_inspected_once(
    known: KnownInspections, task: InspectTask, tmp_path: Path
) -> None:
    """This also holds across servers and for concurrent requests."""
    inspect = Inspector()
    results = await asyncio.gather(*(known.result(task, inspect) for _ in range(5)))
    again = KnownInspections(KeptInspections(tmp_path / "inspections"))
    assert [*results, await again.result(task, inspect)] == 6 * [INSPECTION]
    assert inspect.count == 1


async def test_an_inspection_of_another_tenant_in_progress_delays_nobody(
    known: KnownInspections, task: InspectTask
) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def held() -> Result:
        begun.set()
        await end.wait()
        return INSPECTION

    first = asyncio.create_task(known.result(task, held))
    await begun.wait()
    with called_by(Caller("ci", frozenset(), tenant="other")):
        async with asyncio.timeout(60):
            assert await known.result(task, Inspector()) == INSPECTION
    assert not first.done()
    end.set()
    assert await first == INSPECTION


async def test_a_cancelled_inspection_is_made_by_the_next_that_waits_for_it(
    known: KnownInspections, task: InspectTask
) -> None:
    begun, inspect = asyncio.Event(), Inspector()

    async def endless() -> Result:
        begun.set()
        return await asyncio.Future()

    first = asyncio.create_task(known.result(task, endless))
    await begun.wait()
    second = asyncio.create_task(known.result(task, inspect))
    first.cancel()
    assert (await second, inspect.count) == (INSPECTION, 1)


async def test_identical_content_elsewhere_is_not_inspected_again(
    known: KnownInspections, task: InspectTask, tmp_path: Path
) -> None:
    inspect = Inspector()
    await known.result(task, inspect)
    shutil.copytree(tmp_path / "model", tmp_path / "copy")
    copied = by_recipe(task, model=ModelSource(path=str(tmp_path / "copy")))
    assert await known.result(copied, inspect) == INSPECTION
    assert inspect.count == 1


def written(name: str, text: str) -> Callable[[InspectTask, Path], InspectTask]:
    def write(task: InspectTask, directory: Path) -> InspectTask:
        (directory / name).write_text(text)
        return task

    return write


def changed(**changes: Any) -> Callable[[InspectTask, Path], InspectTask]:
    return lambda task, _: by_recipe(task, **changes)


#: Changes that may affect the result.
CHANGES: dict[str, Callable[[InspectTask, Path], InspectTask]] = {
    "a file of a model that is a directory": written("model/variables/data", "changed"),
    "another file in it": written("model/more", ""),
    "data of the same size": written("train.csv", "a,c"),
    "test data": written("test.csv", "a,b,c"),
    "settings": changed(settings={"seed": 2}),
    "algorithm": changed(algorithm="chamnet"),
    "measures": lambda task, _: task.model_copy(update={"measures": ("accuracy",)}),
    "built-in data": changed(data=DataSource(train="builtin:digits-train", test="builtin:digits-test")),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_changed_content_is_inspected_again(
    known: KnownInspections, task: InspectTask, tmp_path: Path, change: str
) -> None:
    inspect = Inspector()
    await known.result(task, inspect)
    await known.result(CHANGES[change](task, tmp_path), inspect)
    assert inspect.count == 2


async def test_a_new_or_changed_plug_in_causes_a_new_inspection(
    known: KnownInspections, task: InspectTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect = Inspector()
    await known.result(task, inspect)
    directory = installed(
        tmp_path / "added", "added_layers", "class Layer: pass", {"l": "added_layers:L"}, LAYERS
    )
    monkeypatch.syspath_prepend(directory)
    await known.result(task, inspect)
    assert inspect.count == 2
    (directory / "added_layers.py").write_text("class Layer: added = True")
    await known.result(task, inspect)
    assert inspect.count == 3


async def test_changed_code_of_mistify_causes_a_new_inspection(
    known: KnownInspections, task: InspectTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect = Inspector()
    await known.result(task, inspect)
    monkeypatch.setattr("mistify_server.planning.known_inspections._environment", lambda installed: "new")
    await known.result(task, inspect)
    assert inspect.count == 2
    assert {path.parent.name for path in code.files_of("executors")} >= {"morphnet", "training"}


def test_plug_ins_of_mistify_itself_are_not_read_for_each_inspection() -> None:
    """Those that affect inspections belong to its code, which is read once."""
    files = code_of_plug_ins(installed_packages())
    assert not any(file.is_relative_to(REPOSITORY / "mistify_client") for file in files)
    assert not any(file.is_relative_to(REPOSITORY / "executors") for file in files)


async def test_failed_inspections_are_repeated(known: KnownInspections, task: InspectTask) -> None:
    problem = Problem("dataset.train", "nothing", "data", "add some")
    for result in (
        Inspection(costs={}, floor={}, problems=(problem,)),
        TaskFailure(code="INTERNAL", message="the worker has died"),
    ):
        inspect = Inspector(result)
        assert [await known.result(task, inspect) for _ in range(2)] == [result, result]
        assert inspect.count == 2


async def test_an_inspection_is_discarded_if_a_file_changes_meanwhile(
    known: KnownInspections, task: InspectTask, tmp_path: Path
) -> None:
    first = Inspector(meanwhile=lambda: (tmp_path / "train.csv").write_text("changed meanwhile"))
    await known.result(task, first)
    second = Inspector()
    await known.result(task, second)
    assert (first.count, second.count) == (1, 1)


async def test_waiting_requests_continue_when_the_first_one_is_cancelled(
    known: KnownInspections, task: InspectTask
) -> None:
    started = asyncio.Event()

    async def hang() -> Result:
        started.set()
        await asyncio.Event().wait()
        return INSPECTION

    first = asyncio.create_task(known.result(task, hang))
    await started.wait()
    inspect = Inspector()
    second = asyncio.create_task(known.result(task, inspect))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == INSPECTION
    assert inspect.count == 1


async def test_a_lookup_for_many_callers_reads_no_file(
    known: KnownInspections, task: InspectTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first digest of large data takes minutes, for which all others would wait."""
    model = tmp_path / "model" / "variables" / "data"
    of_file = by_recipe(task, model=ModelSource(path=str(model)))
    for path in (model, tmp_path / "train.csv", tmp_path / "test.csv"):
        os.utime(path, (1, 1))
    reading = FileDigests.of
    monkeypatch.setattr(FileDigests, "of", None)
    assert known.lookup()(of_file) is None
    monkeypatch.setattr(FileDigests, "of", reading)
    await known.result(of_file, Inspector())
    assert known.lookup()(of_file) == INSPECTION
    (tmp_path / "train.csv").write_text("changed")
    monkeypatch.setattr(FileDigests, "of", None)
    assert known.lookup()(of_file) is None
