"""Files named in data settings are looked up below the data roots."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from mistify.config.data.dataset import DatasetConfig
from mistify.config.files import FileField, PathKind
from mistify.config.porting import PortingConfig
from mistify.config.reading import collective_batches, parse_batch
from mistify.uploads import UploadName
from mistify_client.porting.local_files import local_files
from mistify_server.planning.lookup import tasks as lookup_tasks
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.store.directory import Store, open_store
from mistify_server.tasks.problems import ProblemCollector


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        yield store


def resolved(
    store: Store, root: Path, allow_code: bool = False, model: str = "digits-resnet", **dataset: Any
) -> tuple[Any, list[str]]:
    """Return the resolved data of a config, and the problems."""
    files = {"train": "t.npz", "test": "t.npz"}
    (root / "t.npz").touch()
    raw = {"id": "half", "model": model, "adaptation_goal": {"FLOP": "0.5x"}}
    config = PortingConfig.model_validate({**raw, "dataset": files | dataset})
    models = ModelRepository(store.models, store.artifacts)
    problems = ProblemCollector()
    resolver = BatchResolver(models, DataRoots.of([root], root / "store"), store.devices, allow_code)
    batches = resolver.resolve(collective_batches([config]), problems)
    return batches[0].data if batches else None, [problem.place for problem in problems.problems]


def test_files_in_settings_are_found_below_a_root(store: Store, tmp_path: Path) -> None:
    for name in ("names.txt", "words.txt"):
        (tmp_path / name).touch()
    tokens = {"tokens": {"vocabulary": "words.txt"}}
    dataset = {"text": {"vocabulary": "words.txt"}, "labels": "names.txt", "preparation": {"ids": tokens}}
    data, problems = resolved(store, tmp_path, **dataset)
    settings, words = data.settings, str(tmp_path / "words.txt")
    assert problems == []
    assert (settings.text.vocabulary, settings.preparation["ids"].tokens.vocabulary) == (words, words)
    assert settings.labels == {"": str(tmp_path / "names.txt")}
    data, _ = resolved(store, tmp_path, labels={"kind": ["a", "b"]})
    assert data.settings.labels == {"kind": ("a", "b")}


SPACE = {
    "properties": {"how many": ["has", "exactly:2"], "which": ["0", "1", "3"]},
    "names": {"odd": ["1", "3"]},
    "tasks": {"two-odd": ["exactly:2", "odd"]},
}


def with_tasks(store: Store, root: Path, space: object, *tasks: object) -> tuple[list[str], list[str]]:
    """Return the tasks of a batch in their resolved form, and the problems, for a file of tasks."""
    (root / "t.npz").touch()
    (root / "tasks.json").write_text(json.dumps(space))
    dataset = {"train": "t.npz", "test": "t.npz", "tasks": "tasks.json"}
    raw = {"model": "digits-resnet", "adaptation_goal": {"FLOP": "0.5x"}, "dataset": dataset}
    configs = [
        PortingConfig.model_validate({**raw, "id": f"goal-{number}", "task": task})
        for number, task in enumerate(tasks)
    ]
    problems = ProblemCollector()
    models = ModelRepository(store.models, store.artifacts)
    resolver = BatchResolver(models, DataRoots.of([root], root / "store"), store.devices)
    batches = resolver.resolve(collective_batches(configs), problems)
    found = [str(config.task) for batch in batches for config in batch.batch.configs]
    return found, [str(problem) for problem in problems.problems]


def test_equal_tasks_are_written_alike(store: Store, tmp_path: Path) -> None:
    tasks = ("two-odd", ["3", "exactly:2", "1"], "odd, exactly:2", ["has", "0"])
    found, problems = with_tasks(store, tmp_path, SPACE, *tasks)
    assert (found, problems) == (["exactly:2, odd"] * 3 + ["has, 0"], [])


def test_a_mistake_in_a_task_is_found_with_its_place(store: Store, tmp_path: Path) -> None:
    found, problems = with_tasks(store, tmp_path, SPACE, "two-odd", ["exactly:2", "od"], ["has"])
    assert found == []
    assert problems == [
        '[1].task[1]: got "od"; expected one of 0, 1, 3, exactly:2, has, odd; did you mean "odd"?',
        '[2].task: got ["has"]; expected a value of "which" as well: 0, 1, 3, odd; add one, for example "0"',
    ]


def test_data_of_a_job_have_to_answer_the_tasks_that_are_added_to_it(tmp_path: Path) -> None:
    """Goals without their own data were not checked when their config was read."""
    (tmp_path / "tasks.json").write_text(json.dumps(SPACE))
    data = {"dataset": {"train": "t.npz", "test": "t.npz", "tasks": "tasks.json"}, "model": "net"}
    added = [
        {"id": "a", "task": "two-odd", "adaptation_goal": {"FLOP": "0.5x"}},
        {"id": "b", "adaptation_goal": {"FLOP": "0.5x"}},
    ]
    (batch,) = collective_batches(parse_batch(json.dumps(added), common=data))
    problems = ProblemCollector()
    with_tasks_of_job = lookup_tasks.with_tasks(batch, str(tmp_path / "tasks.json"), problems)
    assert [str(config.task) for config in with_tasks_of_job.configs] == ["exactly:2, odd", "None"]
    (problem,) = problems.problems
    assert str(problem).startswith("[1].task: got null; expected a task with properties")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"properties": ', "[0].dataset.tasks: got the end of the text (line 1, column 16); expected JSON"),
        (
            b"null",
            "[0].dataset.tasks: got null; expected an object; its keys can be properties, names, tasks",
        ),
        (b'{"caf\xe9": 1}', "[0].dataset.tasks: got bytes that are not UTF-8 (invalid continuation byte)"),
    ],
)
def test_a_file_that_describes_no_tasks_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "tasks.json").write_bytes(content)
    data = {"dataset": {"train": "t.npz", "test": "t.npz", "tasks": "tasks.json"}, "model": "net"}
    goal = {"id": "a", "task": ["a", "b"], "adaptation_goal": {"FLOP": "0.5x"}}
    (batch,) = collective_batches(parse_batch(json.dumps([goal]), common=data))
    problems = ProblemCollector()
    lookup_tasks.with_tasks(batch, str(tmp_path / "tasks.json"), problems)
    assert [str(problem).startswith(expected) for problem in problems.problems] == [True], problems.problems


def test_a_mistake_in_the_file_of_tasks_is_found_with_its_place(store: Store, tmp_path: Path) -> None:
    space = {**SPACE, "names": {"odd": ["1", "5"]}}
    assert with_tasks(store, tmp_path, space, "two-odd") == (
        [],
        [
            '[0].dataset.tasks.names.odd[1]: got "5"; expected one of 0, 1, 3, exactly:2, has; '
            "remove it or use a known name"
        ],
    )


def test_all_missing_files_are_reported(store: Store, tmp_path: Path) -> None:
    tokens = {"tokens": {"vocabulary": "wrds.txt"}}
    dataset = {
        "text": {"vocabulary": "wrds.txt"},
        "labels": {"kind": "names.txt", "open": ["no", "yes"]},
        "preparation": {"ids": tokens},
    }
    assert resolved(store, tmp_path, **dataset) == (
        None,
        [
            "[0].dataset.text.vocabulary",
            "[0].dataset.labels.kind",
            "[0].dataset.preparation.ids.tokens.vocabulary",
        ],
    )


CODE = {"metric": "scores.py:near", "losses": {"price": "losses.py:cautious"}}


def test_files_with_code_are_refused_unless_allowed(store: Store, tmp_path: Path) -> None:
    for name in ("scores.py", "losses.py"):
        (tmp_path / name).write_text(name)
    assert resolved(store, tmp_path, **CODE) == (
        None,
        ["[0].dataset.metric", "[0].dataset.losses.price"],
    )
    data, problems = resolved(store, tmp_path, allow_code=True, **CODE)
    assert problems == []
    assert {name: (file.path, file.sha256) for name, file in data.settings.code.items()} == {
        name: (str(tmp_path / path), hashlib.sha256(path.encode()).hexdigest())
        for name, path in (("near", "scores.py"), ("cautious", "losses.py"))
    }


def test_a_function_as_a_model_is_refused_unless_allowed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    assert resolved(store, tmp_path, model="model.py:network") == (None, ["[0].model"])
    data, problems = resolved(store, tmp_path, allow_code=True, model="model.py:network")
    assert (data is not None, problems) == (True, [])


def test_a_missing_file_with_code_is_reported(store: Store, tmp_path: Path) -> None:
    _, problems = resolved(store, tmp_path, allow_code=True, **CODE)
    assert problems == ["[0].dataset.metric", "[0].dataset.losses.price"]


class WithMasks(DatasetConfig):
    """A dataset with settings unknown to clients and servers."""

    masks: dict[str, Annotated[str, FileField()]] = Field(default_factory=dict)
    crops: Annotated[str, FileField(kind=PathKind.DIRECTORY)] | None = None


class ConfigWithMasks(PortingConfig):
    """A config with such a dataset."""

    dataset: WithMasks


def test_files_in_a_new_setting_are_uploaded_and_found(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, served = tmp_path / "own", tmp_path / "served"
    for directory in (own, served):
        (directory / "crops").mkdir(parents=True)
        for name in ("x.npz", "mask.png", "crops/1.png"):
            (directory / name).write_text(name)
    dataset = {"train": "x.npz", "test": "x.npz", "masks": {"a": "mask.png"}, "crops": "crops"}
    monkeypatch.setattr("mistify_client.porting.local_files.PortingConfig", ConfigWithMasks)
    sent = local_files(json.dumps({"dataset": dataset}), [own])
    assert {path.name for path in sent.paths.values()} == {"x.npz", "mask.png", "1.png"}
    names = json.loads(sent.text)["dataset"]
    assert UploadName.parse(names["masks"]["a"]) is not None
    assert UploadName.parse(names["crops"]).directory

    models = ModelRepository(store.models, store.artifacts)
    resolver = BatchResolver(models, DataRoots.of([served], tmp_path / "store"), store.devices)
    problems = ProblemCollector()
    found = resolver.with_paths(WithMasks.model_validate(dataset), "[0].dataset", problems)
    assert (problems.problems, found.crops) == ([], str(served / "crops"))
    assert found.masks == {"a": str(served / "mask.png")}
    wrong = WithMasks.model_validate(dataset | {"masks": {"a": "none.png"}, "crops": "mask.png"})
    resolver.with_paths(wrong, "[0].dataset", problems)
    assert [problem.place for problem in problems.problems] == ["[0].dataset.masks.a", "[0].dataset.crops"]
