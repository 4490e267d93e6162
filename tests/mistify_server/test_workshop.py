from pathlib import Path
from typing import Any

import keras
import pytest

from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks import (
    AdaptTask,
    DataSource,
    InspectTask,
    ModelSource,
    PackageTask,
    SourceTask,
    Task,
)
from mistify_server.workshop import Workshop

layers = keras.layers

DATA = DataSource(train="builtin:digits-train", test="builtin:digits-test")
SETTINGS = {"source_steps": 4, "adapt_steps": 4, "cuts": 2, "tune_steps": 2, "max_steps": 8}
COMMON: dict[str, Any] = {
    "data": DATA,
    "algorithm": "morphnet",
    "algorithm_config": SETTINGS,
    "hardware": {},
}


class Ticks:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    clock = Ticks()
    monkeypatch.setattr("executors.timesheet.perf_counter", clock)
    return clock


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(artifacts_of(tmp_path), lambda progress: None)


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    inputs = keras.Input((8, 8, 1))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, use_bias=False)(inputs)))
    outputs = layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x))
    keras.Model(inputs, outputs).save(tmp_path / "source.keras")
    return ModelSource(path=str(tmp_path / "source.keras"))


def test_every_second_of_a_task_is_booked_to_what_it_was_spent_on(
    workshop: Workshop, source: ModelSource, ticks: Ticks
) -> None:
    def done(task: Task) -> Any:
        start = ticks.now + 1
        result = workshop.do(task)
        assert result.seconds == ticks.now - start
        assert min(result.spent.values()) > 0
        return result

    def adapted(parent: str, share: float) -> Any:
        budget = {"flops": share * root.root_costs["flops"]}
        return done(
            AdaptTask(
                parent=parent, teacher=root.teacher, budget=budget, accuracy_target=None, seed=0, **COMMON
            )
        )

    trained = {"tracing", "training", "measuring", "saving", "other"}

    inspected = done(InspectTask(model=source, **COMMON))
    assert not inspected.problems
    assert {"loading", "other"} <= set(inspected.spent)
    root = done(SourceTask(model=source, exceed={}, seed=0, **COMMON))
    assert trained <= set(root.spent)
    assert "loading" not in root.spent
    half = adapted(root.root, 0.6)
    assert {"loading", *trained} <= set(half.spent)
    quarter = adapted(half.checkpoint, 0.3)
    assert trained <= set(quarter.spent)
    assert "loading" not in quarter.spent
    packaged = done(
        PackageTask(
            checkpoint=quarter.checkpoint,
            data=DATA,
            goal_id="quarter",
            job_id="job-1",
            budget={},
            accuracy_target=None,
            costs=quarter.costs,
            accuracy=quarter.accuracy,
            hardware={},
        )
    )
    assert {"packaging", "other"} <= set(packaged.spent)
    assert packaged.spent["loading"] == 1


def test_a_task_that_fails_is_not_booked_to_the_next(
    workshop: Workshop, source: ModelSource, ticks: Ticks
) -> None:
    broken = AdaptTask(
        parent="gone", teacher="gone", budget={"flops": 1.0}, accuracy_target=None, seed=0, **COMMON
    )
    with pytest.raises(Exception, match="gone"):
        workshop.do(broken)
    start = ticks.now + 1
    assert workshop.do(InspectTask(model=source, **COMMON)).seconds == ticks.now - start
