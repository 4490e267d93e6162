"""Prepare tasks: reusing and resuming preparations, and the keys that identify them."""

import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from executors.contract.params import Params
from executors.data import Dataset
from executors.pruning.elastic import loaded
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify.config.task import TaskConfig
from mistify.costs.profiles import NominalProfile
from mistify.jobs.job import ProgressUpdate
from mistify.scenarios.served import ServedTasks
from mistify.scenarios.space import TaskSpace
from mistify_server.engines.local import LocalEngine
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks import code
from mistify_server.tasks.results import PrepareResult, SourceResult
from mistify_server.tasks.tasks import AdaptTask, PrepareTask, SourceTask
from mistify_server.worker.prepare_tasks import key_of
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import COMMON, DATA, recipe, saved_source, shallow, taught
from tests.mistify_server.recipes import by_recipe
from tests.mistify_server.worker.test_runner_edges import deeper
from tests.support.processes import children_that_run

SETTINGS = {"source_steps": 4, "segment_steps": 48, "batch_size": 32}
NESTED: dict[str, Any] = {**COMMON, "algorithm": "nested", "settings": SETTINGS}


class InterruptionError(Exception):
    pass


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SourceResult]:
    """Return the directory of a store with a source."""
    directory = tmp_path_factory.mktemp("source")
    runner = TaskRunner(artifacts_of(directory), lambda _: None)
    task = SourceTask(recipe=recipe(saved_source(directory, deeper())), exceed={})
    return directory, runner.run(task)  # type: ignore[return-value]


def task_of(source: SourceResult, share: float = 0.1, **changes: Any) -> PrepareTask:
    """Return a task for goals that need two segments, or one starting at a quarter."""
    least = {"flops": share * source.source_costs["flops"]}
    return PrepareTask(recipe=taught(source.teacher, **{**NESTED, **changes}), least=least)


def test_only_a_preparation_with_the_same_key_is_reused(source: tuple[Path, SourceResult]) -> None:
    directory, root = source
    updates: list[ProgressUpdate] = []
    first: Any = TaskRunner(artifacts_of(directory), updates.append).run(task_of(root, 0.5))
    assert (first.steps, first.spent["training"] > 0) == (48, True)
    training = [update for update in updates if update.stage == "preparing nested"]
    assert [(update.step, update.total_steps) for update in training] == [
        (steps, 48) for steps in range(6, 49, 6)
    ]
    assert all(update.loss for update in training)
    again: Any = TaskRunner(artifacts_of(directory), updates.append).run(task_of(root, 0.5))
    assert (again.prepared, again.steps) == (first.prepared, 0)
    assert "training" not in again.spent
    other: Any = TaskRunner(artifacts_of(directory), updates.append).run(task_of(root, 0.45))
    assert other.steps == 48
    assert other.prepared != first.prepared


@pytest.mark.slow
def test_a_widened_goal_does_not_change_how_later_ones_of_its_worker_are_tuned(tmp_path: Path) -> None:
    """Widened networks learn from changed images."""
    data = DATA.model_copy(update={"settings": DataSettings(augment=Augmentation(crop=1))})
    common = {**NESTED, "data": data, "settings": {**SETTINGS, "segment_steps": 8, "tune_steps": 2}}
    artifacts = artifacts_of(tmp_path)
    one, another = (TaskRunner(artifacts, lambda _: None) for _ in range(2))
    whole = SourceTask(recipe=recipe(saved_source(tmp_path), **common), exceed={})
    flops = one.run(whole).source_costs["flops"]  # type: ignore[union-attr]
    root: Any = one.run(whole.model_copy(update={"exceed": {"flops": 1.5 * flops}}))
    taught_by = taught(root.teacher, **common)
    made: Any = one.run(PrepareTask(recipe=taught_by, least={"flops": 0.5 * flops}))
    tuned = taught_by.model_copy(update={"prepared": made.prepared})

    def edge(share: float) -> AdaptTask:
        return AdaptTask(recipe=tuned, parent=root.root, budget={"flops": share * flops})

    alone: Any = another.run(edge(0.6))
    one.run(edge(1.4))
    later: Any = one.run(edge(0.6))
    assert later.steps == 2
    assert later.checkpoint == alone.checkpoint


@pytest.mark.slow
def test_the_tasks_that_a_preparation_serves_are_kept_with_costs_on_each_hardware(tmp_path: Path) -> None:
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Dense(48, "relu")(keras.layers.Flatten()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(10, "softmax")(hidden))
    artifacts = artifacts_of(tmp_path)
    source = SourceTask(recipe=recipe(saved_source(tmp_path, model)), exceed={})
    root: Any = TaskRunner(artifacts, lambda _: None).run(source)
    board = {"board": NominalProfile("board", 1.0, 1.0)}
    task = task_of(root, algorithm="nnfactory", settings={"gate_steps": 4}, hardware=board)
    results: Any = [TaskRunner(artifacts, lambda _: None).run(task) for _ in range(2)]
    assert [result.steps for result in results] == [4, 0]
    for result in results:
        served = ServedTasks.model_validate_json(artifacts.intact(result.served).read_bytes())
        assert len(served.classes) == 10
        assert served.costs["latency_ms@board"][0] < served.costs["latency_ms@board"][-1]


@pytest.mark.slow
async def test_a_preparation_resumes_after_its_worker_was_killed(
    source: tuple[Path, SourceResult], tmp_path: Path
) -> None:
    """The first of two real workers is killed in the second of two segments."""
    directory, root = source
    updates: list[ProgressUpdate] = []

    def watch(update: ProgressUpdate) -> None:
        if (
            update.stage == "preparing nested"
            and update.step >= 48 + 12
            and not any(map(is_failure, updates))
        ):
            for child in children_that_run("mistify_server.worker"):
                os.kill(child, signal.SIGKILL)
        updates.append(update)

    command = [sys.executable, "-m", "mistify_server.worker", "--store", str(directory)]
    engine = LocalEngine(command, tmp_path, slots=1)
    try:
        result = await engine.run(task_of(root, seed=1), watch)
    finally:
        await engine.close()
    assert isinstance(result, PrepareResult)
    assert result.prepared is not None
    assert result.steps == 96
    assert any(map(is_failure, updates))
    after = updates[[*map(is_failure, updates)].index(True) :]
    (first, *_) = (update.step for update in after if update.stage == "preparing nested")
    assert 48 + 12 < first <= 48 + 24  # neither the first segment nor all of the second again
    assert len(loaded(artifacts_of(directory).path(result.prepared).read_bytes())) == 2


def is_failure(update: ProgressUpdate) -> bool:
    return update.stage.startswith("attempt 1 of 3 failed")


@pytest.mark.slow
def test_a_preparation_resumed_after_a_segment_gives_the_same_result(
    source: tuple[Path, SourceResult], tmp_path: Path
) -> None:
    directory, root = source
    whole: Any = TaskRunner(artifacts_of(directory), lambda _: None).run(task_of(root, seed=2))
    content = artifacts_of(directory).path(whole.prepared).read_bytes()
    for path in directory.glob("artifacts/preparations/*/.made"):
        path.unlink()
    seen: list[int] = []

    def interrupt(update: ProgressUpdate) -> None:
        if update.stage == "preparing nested":
            seen.append(update.step)
            if update.step == 48:
                raise InterruptionError

    with pytest.raises(InterruptionError):
        TaskRunner(artifacts_of(directory), interrupt).run(task_of(root, seed=2))
    again: Any = TaskRunner(artifacts_of(directory), interrupt).run(task_of(root, seed=2))
    assert seen == [*range(6, 97, 6)]
    segments = [loaded(each) for each in (content, artifacts_of(directory).path(again.prepared).read_bytes())]
    for one, other in zip(*segments, strict=True):
        for name, array in one.weights.items():
            np.testing.assert_array_equal(array, other.weights[name])


@pytest.fixture(scope="module")
def made() -> tuple[PrepareTask, keras.Model, TrainingSetup]:
    model = shallow()
    rng = np.random.default_rng(0)
    name, said = model.inputs[0].name, model.layers[-1].name
    data = Dataset({name: rng.random((9, 8, 8, 1)).astype(np.float32)}, {said: np.arange(9)})
    setup = TrainingSetup(data, data, None, Params())
    return PrepareTask(recipe=taught(64 * "a", **NESTED), least={"flops": 9.0}), model, setup


SPACE = {"properties": {"which": ["1", "2"]}, "tasks": {"one": ["1"], "two": ["2"]}}


def answering(setup: TrainingSetup, answer: int = 1, **changes: Any) -> TrainingSetup:
    """The setup with answers to the tasks of a space."""
    answers = np.full((9, 2), answer, np.int8)
    space = TaskSpace.model_validate({**SPACE, **changes})
    return replace(setup, train=replace(setup.train, answers=answers, space=space))


def with_other_weights(model: keras.Model) -> keras.Model:
    other = keras.models.clone_model(model)
    other.set_weights([weight + 1 for weight in model.get_weights()])
    return other


def other_data(setup: TrainingSetup) -> TrainingSetup:
    (name,), (array,) = setup.train.inputs, setup.train.inputs.values()
    changed = array.copy()
    changed[-1, -1, -1] += 1e-3
    return replace(setup, train=replace(setup.train, inputs={name: changed}))


#: Each changes one of the inputs of a preparation.
CHANGES: dict[str, Callable[..., tuple[PrepareTask, keras.Model, TrainingSetup]]] = {
    "weights of the source": lambda t, m, s: (t, with_other_weights(m), s),
    "data": lambda t, m, s: (t, m, other_data(s)),
    "validation data": lambda t, m, s: (t, m, replace(s, validation=s.train.sample(5))),
    "settings of the data": lambda t, m, s: (
        by_recipe(t, data=DATA.model_copy(update={"settings": DataSettings(class_weights="balanced")})),
        m,
        s,
    ),
    "settings": lambda t, m, s: (
        by_recipe(t, settings={**SETTINGS, "segment_steps": 49}),
        m,
        s,
    ),
    "algorithm": lambda t, m, s: (by_recipe(t, algorithm="chamnet"), m, s),
    "least limits": lambda t, m, s: (t.model_copy(update={"least": {"flops": 8.0}}), m, s),
    "axes": lambda t, m, s: (t.model_copy(update={"least": {"params": 9.0}}), m, s),
    "hardware": lambda t, m, s: (
        by_recipe(t, hardware={"board": NominalProfile("board", 1.0, 1.0)}),
        m,
        s,
    ),
    "seed": lambda t, m, s: (by_recipe(t, seed=1), m, s),
    "task": lambda t, m, s: (t.model_copy(update={"task": TaskConfig(classes=("1", "2"))}), m, s),
    "tasks that the data answer": lambda t, m, s: (t, m, answering(s)),
    "names of classes": lambda t, m, s: (
        t,
        m,
        replace(s, train=replace(s.train, classes={"y": ("cat", "dog")})),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_changed_input_changes_the_key(made: Any, change: str) -> None:
    assert key_of(*CHANGES[change](*made)) != key_of(*made)


def test_seeds_of_dropout_do_not_change_the_key(made: Any, tmp_path: Path) -> None:
    """They are drawn anew whenever a network is loaded."""
    task, _, setup = made
    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(3)(keras.layers.Dropout(0.5)(inputs))
    keras.Model(inputs, outputs).save(tmp_path / "dropping.keras")
    models = []
    for seed in (1, 2):
        random.seed(seed)
        models.append(keras.models.load_model(tmp_path / "dropping.keras"))
    (one, *_), (other, *_) = (
        [own.numpy() for own in model.variables if "seed" in own.path] for model in models
    )
    assert not np.array_equal(one, other)
    assert key_of(task, models[0], setup) == key_of(task, models[1], setup)


def test_changed_code_changes_the_key(made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = key_of(*made)
    files = code.files_of

    def with_another(package: str) -> list[Path]:
        (tmp_path / "more.py").write_text("changed = True")
        return [*files(package), *([tmp_path / "more.py"] if package == "executors" else [])]

    code.code_digest.cache_clear()
    monkeypatch.setattr(code, "files_of", with_another)
    assert key_of(*made) != before
    monkeypatch.undo()
    code.code_digest.cache_clear()
    assert key_of(*made) == before
    assert {path.parent.name for path in files("executors")} >= {"nested", "pruning", "training"}


@pytest.mark.slow
def test_file_names_and_hardware_without_a_limit_do_not_change_the_key(
    source: tuple[Path, SourceResult], tmp_path: Path
) -> None:
    """The same data has another name, and the same source was saved again at another time."""
    directory, root = source
    first: Any = TaskRunner(artifacts_of(directory), lambda _: None).run(task_of(root, 0.5, seed=4))
    artifacts = artifacts_of(directory)
    keras.models.load_model(artifacts.path(root.teacher)).save(tmp_path / "again.keras")
    teacher = artifacts.put(tmp_path / "again.keras")
    board = {"board": NominalProfile("board", 1.0, 1.0)}
    task = by_recipe(task_of(root, 0.5, seed=4, hardware=board), teacher=teacher)
    again: Any = TaskRunner(artifacts_of(directory), lambda _: None).run(task)
    assert (again.prepared, again.steps) == (first.prepared, 0)


def test_tasks_count_by_their_content_and_not_by_the_name_of_their_file(made: Any) -> None:
    task, model, setup = made
    keys = {
        key_of(task, model, answering(setup)),
        key_of(task, model, answering(setup, answer=0)),
        key_of(task, model, answering(setup, tasks={"one": ["1"], "other": ["2"]})),
        key_of(task, model, answering(setup, properties={"which": ["1", "2", "3"]})),
    }
    assert len(keys) == 4
    data = DATA.model_copy(update={"settings": DataSettings(tasks="elsewhere/tasks.json")})
    assert key_of(by_recipe(task, data=data), model, answering(setup)) in keys


def test_names_of_classes_count_by_their_content_and_not_by_the_name_of_their_file(made: Any) -> None:
    task, model, setup = made
    keys = {
        key_of(by_recipe(task, data=DATA.model_copy(update={"settings": settings})), model, setup)
        for settings in (DataSettings(labels="labels.txt"), DataSettings(labels="others.txt"))
    }
    assert len(keys) == 1
