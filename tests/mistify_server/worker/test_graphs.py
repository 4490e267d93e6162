"""Graphs without Keras structure in a worker, from inspection to packaging."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset, split
from executors.readers.builtin import read_builtin
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify.config.data.metric import Metric
from mistify.config.data.preparation import InputScaling
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import latency_axis
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile, by_name
from mistify.costs.quantization import Quantization
from mistify.jobs.package_spec import PackageSpec
from mistify.package.manifest import Manifest
from mistify_server.store.artifacts import Artifacts, artifacts_of
from mistify_server.tasks.results import Inspection, SourceResult
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import (
    AdaptTask,
    InspectTask,
    PackageTask,
    ReferenceTask,
    SourceTask,
)
from mistify_server.worker.packaging.measurement import isolated
from mistify_server.worker.packaging.tflite import runner
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import recipe, taught
from tests.support.ending import end
from tests.support.saved_models import Digits, save_digits

COMMON: dict[str, Any] = {
    "data": DataSource(train="builtin:digits-train", test="builtin:digits-test"),
    "algorithm": "morphnet",
    "settings": {},
    "hardware": by_name([HOST, NominalProfile("pi", 5.0, 1.0)]),
}
MULTIPLY_ADDS = 9 * 64 + 64 * 32 + 32 * 10
PARAMS = 9 + 64 * 32 + 32 + 32 * 10 + 10


class Bench:
    """A worker with a graph for the digits."""

    def __init__(self, directory: Path) -> None:
        self.module: Digits = save_digits(directory / "digits")
        self.model = ModelSource(path=str(directory / "digits"))
        self.artifacts: Artifacts = artifacts_of(directory)
        self.runner = TaskRunner(self.artifacts, lambda _: None)
        self.root: SourceResult = self.do(SourceTask(recipe=recipe(self.model, **COMMON), exceed={}))

    def do(self, task: Any) -> Any:
        return self.runner.run(task)

    def inspect(self, **changes: Any) -> Inspection:
        result: Inspection = self.do(InspectTask(recipe=recipe(self.model, **{**COMMON, **changes})))
        return result


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def test_a_graph_is_inspected(bench: Bench) -> None:
    result = bench.inspect()
    assert not result.problems
    assert not result.adaptable
    assert (result.costs["flops"], result.costs["params"]) == (
        MULTIPLY_ADDS,
        pytest.approx(PARAMS, abs=10),
    )
    assert result.floor == {axis: cost for axis, cost in result.costs.items() if "latency" not in axis}
    assert result.metric is Metric.ACCURACY


@pytest.mark.slow
def test_a_graph_is_measured_with_each_number_of_threads(bench: Bench) -> None:
    hardware = by_name([HOST, HOST.with_threads(2)])
    costs = bench.inspect(hardware=hardware).costs
    for axis in ("latency_ms@host", "latency_ms@host@2-threads"):
        assert costs[f"{axis}@int8"] == costs[axis] > 0


def test_the_source_is_measured_and_not_changed(bench: Bench) -> None:
    train = read_builtin("builtin:digits-train")
    _, validation = split(Dataset({"x": train["x"]}, {"y": train["y"]}), 0.1)
    predicted = bench.module.serve(tf.constant(validation.inputs["x"]))["digit"].numpy().argmax(axis=1)
    assert bench.root.source_accuracy == pytest.approx((predicted == validation.targets["y"]).mean())
    assert bench.root.source_accuracy > 0.9
    assert bench.root.root == bench.root.teacher
    assert bench.root.root_costs == bench.root.source_costs
    adapted = bench.do(
        AdaptTask(recipe=taught(bench.root.teacher, **COMMON), parent=bench.root.root, budget={"flops": 1e9})
    )  # fmt: skip
    assert (adapted.checkpoint, adapted.steps, adapted.met) == (bench.root.root, 0, True)
    assert (adapted.costs, adapted.accuracy) == (bench.root.root_costs, bench.root.source_accuracy)


@pytest.mark.sampled
@pytest.mark.parametrize("precision", ["none", "float16", "dynamic", "int8"])
def test_a_graph_is_packaged_at_every_precision(bench: Bench, precision: str) -> None:
    result = bench.do(
        PackageTask(
            recipe=taught(bench.root.teacher, **COMMON),
            checkpoint=bench.root.root,
            job_id="job",
            goal_id="goal",
            spec=PackageSpec({}, quantization=QuantizationConfig.model_validate(precision)),
            costs=bench.root.root_costs,
            accuracy=bench.root.source_accuracy,
        )
    )
    content = bench.artifacts.path(result.files["serve.tflite"]).read_bytes()
    manifest = Manifest.model_validate_json(bench.artifacts.path(result.files["manifest.json"]).read_bytes())
    test = read_builtin("builtin:digits-test")
    predicted = Runner(content)({"image": test["x"]})["digit"]
    assert (predicted.argmax(axis=1) == test["y"]).mean() == pytest.approx(manifest.accuracy)
    assert manifest.accuracy > bench.root.source_accuracy - 0.02
    assert ([info.name for info in manifest.inputs], [info.name for info in manifest.outputs]) == (
        ["image"],
        ["digit"],
    )
    here = {latency_axis("host"), latency_axis("host", Quantization(precision))}
    assert manifest.measured.keys() == here
    if precision == "none":
        expected = bench.module.serve(tf.constant(test["x"]))["digit"]
        np.testing.assert_allclose(predicted, expected, atol=1e-5)


def test_the_graph_is_measured_on_the_test_data(bench: Bench) -> None:
    test = read_builtin("builtin:digits-test")
    predicted = bench.module.serve(tf.constant(test["x"]))["digit"].numpy().argmax(axis=1)
    data = COMMON["data"]
    result = bench.do(
        ReferenceTask(recipe=taught(bench.root.teacher, data=data, model=bench.model), threads=(2,))
    )
    assert result.accuracy == result.tuned_accuracy == pytest.approx((predicted == test["y"]).mean())
    assert result.measured.keys() == {"latency_ms@host@2-threads"}


def test_settings_that_change_or_train_a_model_are_reported(bench: Bench) -> None:
    settings = DataSettings(
        scale=InputScaling(factor=2.0), augment=Augmentation(flip=True), class_weights="balanced"
    )
    data = DataSource(train="generated:10", test="builtin:digits-test", settings=settings)
    places = [problem.place for problem in bench.inspect(data=data).problems]
    assert places == ["dataset.scale", "dataset.augment", "dataset.class_weights", "dataset.train"]


def test_a_graph_accepts_no_unlabelled_inputs_next_to_labelled_ones(bench: Bench) -> None:
    data = DataSource(
        train="builtin:digits-train", test="builtin:digits-test", unlabelled="builtin:digits-test"
    )
    (problem,) = bench.inspect(data=data).problems
    assert (problem.place, problem.value) == ("dataset.unlabelled", "builtin:digits-test")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("photos") / "photos.npz"
    np.savez(path, x=read_builtin("builtin:digits-train")["x"][:300])
    return str(path)


@pytest.mark.slow
def test_without_labels_a_package_is_scored_by_its_agreement_with_the_graph(
    bench: Bench, photos: str
) -> None:
    unlabelled = DataSource(unlabelled=photos, labelled=False)
    inspected = bench.inspect(data=unlabelled)
    assert not inspected.problems
    assert inspected.metric is Metric.AGREEMENT
    settings = unlabelled.settings.model_copy(update={"metric": inspected.metric})
    task = {**COMMON, "data": unlabelled.model_copy(update={"settings": settings})}
    root = bench.do(SourceTask(recipe=recipe(bench.model, **task), exceed={}))
    assert root.source_accuracy == 1.0
    with np.load(root.data.answered["test"]) as test:
        inputs, answers = test["image"], test["digit"]
    assert len(inputs) == 30
    own = bench.module.serve(tf.constant(inputs))["digit"].numpy().argmax(axis=1)
    np.testing.assert_array_equal(answers, own)
    result = bench.do(
        PackageTask(
            recipe=taught(root.teacher, **{**task, "data": root.data}),
            checkpoint=root.root,
            job_id="job",
            goal_id="goal",
            spec=PackageSpec({}, quantization=QuantizationConfig(precision=Quantization.INT8)),
            costs=root.root_costs,
            accuracy=1.0,
        )
    )
    manifest = Manifest.model_validate_json(bench.artifacts.path(result.files["manifest.json"]).read_bytes())
    package = Runner(bench.artifacts.path(result.files["serve.tflite"]).read_bytes())
    agreed = (package({"image": inputs})["digit"].argmax(axis=1) == own).mean()
    assert (manifest.metric, manifest.accuracy) == (Metric.AGREEMENT, pytest.approx(agreed))
    assert agreed > 0.9
    assert "your unlabelled inputs" in manifest.note


def test_labelled_test_data_gives_the_accuracy_of_a_package_without_other_labels(
    bench: Bench, photos: str
) -> None:
    data = DataSource(unlabelled=photos, test="builtin:digits-test")
    inspected = bench.inspect(data=data)
    assert (inspected.problems, inspected.metric) == ((), Metric.ACCURACY)
    root = bench.do(SourceTask(recipe=recipe(bench.model, **{**COMMON, "data": data}), exceed={}))
    assert set(root.data.answered) == {"train"}
    assert root.source_accuracy == 1.0


def test_without_labels_there_is_no_accuracy(bench: Bench, photos: str) -> None:
    settings = DataSettings(metric=Metric.ACCURACY)
    data = DataSource(unlabelled=photos, labelled=False, settings=settings)
    (problem,) = bench.inspect(data=data).problems
    assert (problem.place, problem.value) == ("dataset.metric", '"accuracy"')
    assert problem.expected.startswith("agreement")


def test_unsuitable_data_is_reported(bench: Bench, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros((4, 8, 8, 2), np.float32), y=np.arange(4))
    data = DataSource(train=str(tmp_path / "data.npz"), test="builtin:digits-test")
    (problem,) = bench.inspect(data=data).problems
    assert (problem.place, problem.value) == ("dataset.train", "x of shape (4, 8, 8, 2)")


def test_a_graph_that_crashes_litert_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "measure_latency", end)
    monkeypatch.setattr(isolated, "measure_latencies", end)
    as_foreseen = bench.inspect()
    assert not as_foreseen.problems
    assert as_foreseen.hardware["host"] == HOST
    monkeypatch.setattr(runner, "describe", end)
    (problem,) = bench.inspect().problems
    assert problem.place == "model"
    assert "LiteRT crashes" in problem.value


def test_operations_missing_in_litert_are_reported(tmp_path: Path) -> None:
    module = tf.Module()
    module.serve = tf.function(tf.linalg.det, input_signature=[tf.TensorSpec([None, 2, 2], tf.float32, "x")])
    tf.saved_model.save(module, str(tmp_path / "graph"), signatures={"serving_default": module.serve})
    runner = TaskRunner(artifacts_of(tmp_path), lambda _: None)
    result: Any = runner.run(InspectTask(recipe=recipe(ModelSource(path=str(tmp_path / "graph")), **COMMON)))
    (problem,) = [problem for problem in result.problems if problem.place == "model"]
    assert problem.value == "the operation MatrixDeterminant"
    assert not result.costs
