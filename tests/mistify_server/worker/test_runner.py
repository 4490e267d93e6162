import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from executors.readers.builtin import read_builtin
from executors.search import Predictor, Sample
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify.config.data.metric import Metric
from mistify.config.data.preparation import ImagePreparation, InputScaling, Preparation
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import (
    AdaptTask,
    InspectTask,
    PackageTask,
    PrepareTask,
    ReferenceTask,
    SourceTask,
    Task,
)
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import COMMON, DATA, SETTINGS, recipe, saved_source, taught
from tests.support.targets import overall

layers = keras.layers


class Ticks:
    """A clock that advances by a second at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    clock = Ticks()
    monkeypatch.setattr("executors.timing.perf_counter", clock)
    return clock


@pytest.fixture
def runner(tmp_path: Path) -> TaskRunner:
    return TaskRunner(artifacts_of(tmp_path), lambda progress: None)


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    return saved_source(tmp_path)


@pytest.mark.slow
def test_every_second_of_a_task_is_attributed_to_an_activity(
    runner: TaskRunner, source: ModelSource, ticks: Ticks
) -> None:
    def done(task: Task) -> Any:
        start = ticks.now + 1
        result = runner.run(task)
        assert result.seconds == ticks.now - start
        assert min(result.spent.values()) > 0
        return result

    def adapted(parent: str, share: float) -> Any:
        budget = {"flops": share * root.root_costs["flops"]}
        return done(AdaptTask(recipe=taught(root.teacher), parent=parent, budget=budget))

    trained = {"tracing", "training", "measuring", "saving", "other"}

    inspected = done(InspectTask(recipe=recipe(source)))
    assert not inspected.problems
    assert len(inspected.inputs) == 1
    assert {"loading", "other"} <= set(inspected.spent)
    root = done(SourceTask(recipe=recipe(source), exceed={}))
    assert trained <= set(root.spent)
    assert "loading" not in root.spent
    half = adapted(root.root, 0.6)
    assert trained <= set(half.spent)
    quarter = adapted(half.checkpoint, 0.3)
    assert trained <= set(quarter.spent)
    packaged = done(
        PackageTask(
            recipe=taught(root.teacher),
            checkpoint=quarter.checkpoint,
            job_id="job-1",
            goal_id="quarter",
            spec=PackageSpec({}),
            costs=quarter.costs,
            accuracy=quarter.accuracy,
        )
    )
    assert {"packaging", "other"} <= set(packaged.spent)
    later = (half, quarter, packaged)  # networks that the worker has just made are in memory
    assert not any("loading" in result.spent for result in later)


def test_the_time_of_a_failed_task_is_not_attributed_to_the_next(
    runner: TaskRunner, source: ModelSource, ticks: Ticks
) -> None:
    broken = AdaptTask(recipe=taught("gone"), parent="gone", budget={"flops": 1.0})
    with pytest.raises(Exception, match="gone"):
        runner.run(broken)
    start = ticks.now + 1
    assert runner.run(InspectTask(recipe=recipe(source))).seconds == ticks.now - start


def test_the_source_is_measured_on_the_test_data_in_litert(source: ModelSource, tmp_path: Path) -> None:
    """The reference are Keras scores on the same data."""
    artifacts = artifacts_of(tmp_path)
    runner = TaskRunner(artifacts, lambda progress: None)
    test = read_builtin("builtin:digits-test")
    came, other = (keras.models.load_model(source.path, compile=False) for _ in range(2))
    rng = np.random.default_rng(0)
    other.set_weights([rng.uniform(0, 1, array.shape) for array in other.get_weights()])
    tuned = Checkpoints(artifacts).save(other)
    result: Any = runner.run(ReferenceTask(recipe=taught(tuned, data=DATA, model=source), threads=(1, 2)))

    def score(model: Any) -> float:
        return float((model.predict(test["x"], verbose=0).argmax(axis=1) == test["y"]).mean())

    assert score(came) != score(other)
    assert (result.accuracy, result.tuned_accuracy) == pytest.approx((score(came), score(other)))
    assert result.measured.keys() == {"latency_ms@host", "latency_ms@host@2-threads"}
    assert min(result.measured.values()) > 0
    assert "measuring" in result.spent


def regression(directory: Path) -> tuple[ModelSource, DataSource]:
    """Return a model that predicts the sum of three numbers, and data with a mean of 100."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 200), ("test", 40)):
        figures = rng.normal(100, 10, (count, 3))
        lines = [f"{a},{b},{c},{(a + b + c - 300) / 10}" for a, b, c in figures]
        (directory / f"{part}.csv").write_text("\n".join(["a,b,c,sum", *lines]))
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,), name="figures")
    x = layers.Dense(12, "tanh")(inputs)
    keras.Model(inputs, layers.Dense(1, name="sum")(x)).save(directory / "sum.keras")
    scale = InputScaling(mean=(100.0,) * 3, std=(10.0,) * 3)
    settings = DataSettings(scale=scale, validation=0.2)
    data = DataSource(train=str(directory / "train.csv"), test=str(directory / "test.csv"), settings=settings)
    return ModelSource(path=str(directory / "sum.keras")), data


@pytest.mark.slow
def test_a_regression_model_is_ported_with_squared_error(runner: TaskRunner, tmp_path: Path) -> None:
    """The metric, its direction and the scaling are passed from the config to every task."""
    model, data = regression(tmp_path)
    common = {
        **COMMON,
        "data": data,
        "settings": {**SETTINGS, "source_steps": 600, "tune_steps": 200},
    }
    inspection: Any = runner.run(InspectTask(recipe=recipe(model, **common)))
    assert (inspection.metric, inspection.problems) == (Metric.MSE, ())
    settings = data.settings.model_copy(update={"metric": inspection.metric, "metrics": inspection.metrics})
    common["data"] = data.model_copy(update={"settings": settings})
    root: Any = runner.run(SourceTask(recipe=recipe(model, **common), exceed={}))
    assert root.teacher_accuracy < 0.2 * root.source_accuracy
    budget = {"flops": 0.7 * root.root_costs["flops"]}
    made: Any
    for target, met in ((4.0, True), (1e-9, False)):
        made = runner.run(
            AdaptTask(
                recipe=taught(root.teacher, **{**common, "seed": 7}),
                parent=root.root,
                budget=budget,
                targets=overall(target, Metric.MSE),
            )
        )
        assert made.met is met
    assert re.match(r"mse 0\.\d+ above 0\.0000 on the validation data after", made.reason)


def test_settings_that_do_not_suit_the_model_are_reported(runner: TaskRunner, source: ModelSource) -> None:
    settings = DataSettings(
        metric=Metric.MSE,
        class_weights=(1.0, 2.0),
        augment=Augmentation(crop=8),
        scale=InputScaling(mean=(1.0, 2.0), std=(1.0, 2.0)),
        labels={"": ("zero", "one")},
        preparation={"photo": Preparation(image=ImagePreparation())},
    )
    places: list[str] = []
    for update in ({}, {"scale": None}):
        data = DATA.model_copy(update={"settings": settings.model_copy(update=update)})
        inspection: Any = runner.run(InspectTask(recipe=recipe(source, data=data)))
        places += [problem.place for problem in inspection.problems]
    assert places == [
        "dataset.scale",
        "dataset.metric",
        "dataset.class_weights",
        "dataset.labels",
        "dataset.preparation.photo",
        "dataset.augment",
    ]


def test_a_preparation_is_stored_and_passed_to_the_edges_of_its_algorithm(
    tmp_path: Path, source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = artifacts_of(tmp_path)
    settings = {"source_steps": 4, "adapt_steps": 4, "tune_steps": 2, "max_steps": 8, "cuts": 1}
    search = {
        "data": DATA,
        "algorithm": "chamnet",
        "settings": {**settings, "samples": 5, "init_population": 2},
        "hardware": {},
    }
    runner = TaskRunner(artifacts, lambda progress: None)
    root: Any = runner.run(SourceTask(recipe=recipe(source, **search), exceed={}))
    result: Any = runner.run(PrepareTask(recipe=taught(root.teacher, **search), least={}))
    prepared = result.prepared
    samples = Predictor.loaded(artifacts.path(prepared).read_bytes()).samples
    assert 1 < len(samples) <= 5  # steps with which the smallest share can be reached
    known = []
    learn = Predictor.learn

    def learned(predictor: Predictor, more: list[Sample]) -> None:
        known.append(list(predictor.samples))
        learn(predictor, more)

    monkeypatch.setattr(Predictor, "learn", learned)
    adapted: Any = TaskRunner(artifacts, lambda progress: None).run(
        AdaptTask(
            recipe=taught(root.teacher, prepared=prepared, **search),
            parent=root.root,
            budget={"flops": 0.6 * root.root_costs["flops"]},
        )
    )
    assert adapted.met
    assert known[0] == samples


def brightness_model(directory: Path, turned: float) -> tuple[ModelSource, DataSource]:
    """Return a source that compares or adds the brightness of both image sides, and data for it."""
    inputs = keras.Input((4, 6, 1), name="x")
    hidden = layers.Dense(3, activation="relu", name="hidden")(layers.Flatten()(inputs))
    model = keras.Model(inputs, layers.Dense(2, name="y")(hidden))
    kernel = np.concatenate([np.ones((4, 3)), np.full((4, 3), turned)], axis=1).reshape(-1, 1)
    model.set_weights(
        [
            np.concatenate([kernel, -kernel, 0 * kernel], axis=1),
            np.zeros(3),
            np.eye(3, 2),
            np.zeros(2),
        ]
    )
    model.save(directory / "sides.keras")
    rng = np.random.default_rng(0)
    for name, count in ("train", 1_200), ("test", 200):
        x = rng.normal(size=(count, 4, 6, 1)).astype(np.float32)
        np.savez(directory / f"{name}.npz", x=x, y=model.predict(x, verbose=0).argmax(axis=1))
    data = DataSource(train=str(directory / "train.npz"), test=str(directory / "test.npz"))
    return ModelSource(path=str(directory / "sides.keras")), data


@pytest.mark.sampled
@pytest.mark.parametrize(("turned", "flips"), [(1.0, True), (-1.0, False)])
def test_goals_learn_from_flipped_images_if_the_source_is_invariant(
    runner: TaskRunner, tmp_path: Path, turned: float, flips: bool
) -> None:
    model, data = brightness_model(tmp_path, turned)
    common = {**COMMON, "data": data}
    inspection: Any = runner.run(
        InspectTask(recipe=recipe(model, **common), measures=("accuracy", "step", "trial"))
    )
    assert inspection.problems == ()
    assert inspection.trial.flips == flips
    root: Any = runner.run(SourceTask(recipe=recipe(model, **common), exceed={}))
    learned = root.data or data
    assert learned.settings.augment == (Augmentation(flip=True) if flips else None)
    assert learned.model_copy(update={"settings": data.settings}) == data
    common["data"] = learned
    budget = {"flops": 0.7 * root.root_costs["flops"]}
    made: Any = runner.run(
        AdaptTask(recipe=taught(root.teacher, **{**common, "seed": 7}), parent=root.root, budget=budget)
    )
    assert made.met, made.reason
