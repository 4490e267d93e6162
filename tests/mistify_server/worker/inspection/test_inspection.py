"""Inspections with generated data, before and after the data exists."""

import re
from pathlib import Path
from typing import Any

import keras
import pytest

from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import by_name
from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import InspectTask, SourceTask
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import COMMON, recipe, saved_source


def generated(count: int, **settings: Any) -> dict[str, Any]:
    """Return the common fields of tasks that generate these numbers of training and test examples."""
    source = f"generated:{count}"
    data = DataSource(train=source, test=source, settings=DataSettings(**settings), labelled=False)
    return {**COMMON, "data": data}


@pytest.mark.slow
def test_an_inspection_does_not_report_missing_classes_of_data_to_be_generated(tmp_path: Path) -> None:
    """An inspection generates one example. Metrics that suit no output are reported."""
    runner, model = TaskRunner(artifacts_of(tmp_path), lambda _: None), saved_source(tmp_path)

    def inspected(metric: Metric | None) -> Any:
        common = generated(500, metric=metric, class_weights="balanced")
        return runner.run(InspectTask(recipe=recipe(model, **common), measures=("accuracy",)))

    inspection = inspected(Metric.ROC_AUC)
    assert inspection.problems == ()
    assert inspection.estimates.accuracy == 1.0
    assert [problem.place for problem in inspected(Metric.MSE).problems] == ["dataset.metric"]
    assert inspected(None).metric is Metric.AGREEMENT
    (problem,) = inspected(Metric.ACCURACY).problems
    assert (problem.place, problem.value) == ("dataset.metric", '"accuracy"')


@pytest.mark.slow
def test_this_machine_is_profiled_at_each_precision_if_requested(tmp_path: Path) -> None:
    runner, model = TaskRunner(artifacts_of(tmp_path), lambda _: None), saved_source(tmp_path)
    common = {**COMMON, "hardware": by_name([HOST])}
    inspection = runner.run(InspectTask(recipe=recipe(model, **common), measures=("host",)))
    assert isinstance(inspection, Inspection)
    costs, floor = inspection.costs, inspection.floor
    profiles = ("host", "host@float16", "host@dynamic", "host@int8")
    assert set(inspection.hardware) == set(profiles)
    for axis in map("latency_ms@{}".format, profiles):
        assert 0.05 < costs[axis] / costs["latency_ms@host"] < 20
        assert 0 < floor[axis] <= costs[axis]
    two = {**common, "hardware": by_name([HOST, HOST.with_threads(2)])}
    inspection = runner.run(InspectTask(recipe=recipe(model, **two), measures=("host",)))
    assert isinstance(inspection, Inspection)
    threaded = {profile.replace("host", "host@2-threads") for profile in profiles}
    assert set(inspection.hardware) == {*profiles, *threaded}
    assert {f"latency_ms@{profile}" for profile in threaded} <= inspection.costs.keys()
    without = runner.run(InspectTask(recipe=recipe(model, **common)))
    assert isinstance(without, Inspection)
    assert "latency_ms@host@int8" not in without.costs


def test_classes_that_were_not_generated_are_reported(tmp_path: Path) -> None:
    runner, model = TaskRunner(artifacts_of(tmp_path), lambda _: None), saved_source(tmp_path)
    common = generated(2, metric=Metric.ROC_AUC, class_weights="balanced")
    with pytest.raises(MistifyError, match="predictions cannot be used as labels") as caught:
        runner.run(SourceTask(recipe=recipe(model, **common), exceed={}))
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert [problem.place for problem in caught.value.problems] == ["dataset.metric", "dataset.class_weights"]


@pytest.mark.slow
def test_a_trial_shows_what_a_source_with_random_weights_can_learn(tmp_path: Path) -> None:
    runner, model = TaskRunner(artifacts_of(tmp_path), lambda _: None), saved_source(tmp_path)
    common = {**COMMON, "settings": {"source_steps": 200, "learning_rate": 0.1}}
    inspection = runner.run(
        InspectTask(recipe=recipe(model, **common), measures=("accuracy", "step", "trial"))
    )
    assert isinstance(inspection, Inspection)
    estimates, trial = inspection.estimates, inspection.trial
    assert estimates is not None
    assert estimates.accuracy is not None
    assert trial is not None
    assert trial.accuracy is not None
    assert 20 <= trial.steps <= 200
    assert trial.accuracy > estimates.accuracy + 0.1
    assert (trial.tested, trial.sampled) == (359, 144)
    (own,) = trial.scores
    assert (own.metric, own.value) == (Metric.ACCURACY, trial.accuracy)
    without = runner.run(InspectTask(recipe=recipe(model, **common), measures=("accuracy",)))
    assert isinstance(without, Inspection)
    assert without.trial is None


@pytest.mark.slow
def test_rules_for_layers_raise_the_minimum_costs(tmp_path: Path) -> None:
    """A channel of the convolution costs 36 * 9 + 10 multiply-adds."""
    runner, model = TaskRunner(artifacts_of(tmp_path), lambda _: None), saved_source(tmp_path)

    def inspected(layers: dict[str, Any]) -> Any:
        return runner.run(InspectTask(recipe=recipe(model, settings={"layers": layers})))

    floors = {
        4: {"conv2d*": {"at_least": 4}},
        8: {"batch_norm*": "keep"},
        1: {"*": {"at_least": 1}},
    }
    for channels, layers in floors.items():
        assert inspected(layers).floor["flops"] == channels * 334
    assert inspected({}).floor["flops"] == 334
    (problem,) = inspected({"conv2d*": "keep", "batch_nrom*": "keep"}).problems
    assert (problem.place, problem.value) == ("algorithm.config.layers", '"batch_nrom*"')
    assert "did you mean batch_normalization" in problem.fix
    (problem,) = inspected({"conv2d": "freeze"}).problems
    assert problem.place == "algorithm.config.layers.conv2d"


@pytest.mark.sampled
@pytest.mark.parametrize("operation", ["erf", "cumprod"])
def test_operations_missing_in_litert_are_reported(tmp_path: Path, operation: str) -> None:
    inputs = keras.Input((8, 8, 1))
    flat = keras.layers.Flatten()(inputs)
    x = keras.ops.erf(flat) if operation == "erf" else keras.ops.cumprod(flat, axis=1)
    source = saved_source(tmp_path, keras.Model(inputs, keras.layers.Dense(10, "softmax")(x)))
    runner = TaskRunner(artifacts_of(tmp_path), lambda _: None)
    inspection: Any = runner.run(InspectTask(recipe=recipe(source)))
    (problem,) = inspection.problems
    assert problem.place == "model"
    # Keras numbers layers without a name.
    assert re.fullmatch(rf"layer '{operation}(_\d+)?', a {operation.capitalize()}", problem.value)
    assert not inspection.costs
