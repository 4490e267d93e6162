"""Tasks with the user's own unlabelled inputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert.interpreter import Interpreter
from sklearn.datasets import load_digits
from sklearn.metrics import recall_score

from executors.contract.params import Params
from executors.sources.keras.loading import builtin_source, flatten
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.jobs.package_spec import PackageSpec
from mistify.package.manifest import Manifest
from mistify_server.store.artifacts import Artifacts, artifacts_of
from mistify_server.tasks.results import PackageResult, SourceResult
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import InspectTask, PackageTask, SourceTask
from mistify_server.worker.cache import SourceCache
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.tflite.runner import SIGNATURE
from mistify_server.worker.runner import TaskRunner
from mistify_server.worker.training_setups import TrainingSetups
from tests.mistify_server.digits_tasks import SETTINGS, recipe, taught

Figures = npt.NDArray[Any]

#: Digits, including the training data of the built-in network, and blurred ones that it misclassifies.
UNLABELLED, TEST = slice(0, 300), slice(300, 500)
MODEL = ModelSource(builtin="digits-resnet")
COMMON: dict[str, Any] = {"algorithm": "morphnet", "settings": SETTINGS, "hardware": {}}


def digits(rows: slice) -> tuple[Figures, Figures]:
    """Return images [examples, 8, 8, 1] that are hard to classify, and their classes."""
    x, y = load_digits(return_X_y=True)
    images = x.reshape(-1, 8, 8, 1).astype(np.float32) / 16
    noise = np.random.default_rng(0).normal(size=images.shape).astype(np.float32)
    return (images + noise / 3)[rows], y[rows].astype(np.int64)


@dataclass
class Ported:
    """A source and a package of it, with data."""

    artifacts: Artifacts
    root: SourceResult
    package: PackageResult

    @property
    def data(self) -> DataSource:
        assert self.root.data is not None
        return self.root.data

    def answered(self, part: str) -> dict[str, Figures]:
        with np.load(self.data.answered[part]) as arrays:
            return dict(arrays)

    @property
    def manifest(self) -> Manifest:
        return Manifest.model_validate_json(
            self.artifacts.path(self.package.files["manifest.json"]).read_bytes()
        )

    def predicted_classes(self, images: Figures) -> Figures:
        """Return the classes predicted by the package, one image at a time."""
        network = Interpreter(str(self.artifacts.path(self.package.files["serve.tflite"])))
        run = network.get_signature_runner(SIGNATURE)
        (name,) = run.get_input_details()
        return np.array([int(np.argmax(next(iter(run(**{name: image[None]}).values())))) for image in images])


@pytest.fixture(scope="module")
def source() -> keras.Model:
    return flatten("digits-resnet", builtin_source("digits-resnet"))


def predicted_classes(model: keras.Model, images: Figures) -> Figures:
    return np.asarray(model.predict(images, verbose=0).argmax(axis=1))


def ported(directory: Path, data: DataSource) -> Ported:
    """Package the widened source after cutting it by hand, so that it often disagrees with the source."""
    runner = TaskRunner(artifacts_of(directory), lambda _: None)
    metric = runner.run(InspectTask(recipe=recipe(MODEL, data=data, **COMMON))).metric  # type: ignore[union-attr]
    data = data.model_copy(update={"settings": data.settings.model_copy(update={"metric": metric})})
    root: Any = runner.run(SourceTask(recipe=recipe(MODEL, data=data, **COMMON), exceed={}))
    artifacts = artifacts_of(directory)
    changed = keras.models.load_model(artifacts.path(root.root))
    *_, (kernel, _) = (layer.weights for layer in changed.layers if isinstance(layer, keras.layers.Dense))
    kernel.assign(kernel + np.random.default_rng(1).normal(size=kernel.shape) / 2)
    changed.save(directory / "changed.keras")
    package: Any = runner.run(
        PackageTask(
            recipe=taught(root.teacher, data=root.data or data, **COMMON),
            job_id="job-1",
            goal_id="changed",
            spec=PackageSpec({}),
            checkpoint=artifacts.put(directory / "changed.keras"),
            costs=root.root_costs,
            accuracy=0.5,
        )
    )
    return Ported(artifacts, root, package)


@pytest.mark.slow
def test_with_only_unlabelled_inputs_the_score_is_agreement_on_held_out_inputs(
    tmp_path: Path, source: keras.Model
) -> None:
    images, classes = digits(UNLABELLED)
    np.savez(tmp_path / "photos.npz", x=images)
    np.savez(tmp_path / "labelled.npz", x=images, y=(classes + 1) % 10)
    alone = ported(tmp_path, DataSource(unlabelled=str(tmp_path / "photos.npz"), labelled=False))
    (tmp_path / "other").mkdir()
    again = ported(tmp_path / "other", DataSource(unlabelled=str(tmp_path / "labelled.npz"), labelled=False))
    assert [Path(path).name for path in again.data.answered.values()] == [
        Path(path).name for path in alone.data.answered.values()
    ]  # digests of the inputs: labels in the file are not used
    (name,) = (tensor.name for tensor in source.inputs)
    (said,) = (key for key in alone.answered("test") if key != name)
    parts = [alone.answered(part) for part in ("train", "test")]
    assert [len(part[name]) for part in parts] == [270, 30]
    every = np.concatenate([part[name] for part in parts])
    np.testing.assert_array_equal(np.unique(every, axis=0), np.unique(images, axis=0))
    for part in parts:
        np.testing.assert_array_equal(part[said], predicted_classes(source, part[name]))
    predicted, true = alone.predicted_classes(parts[1][name]), predicted_classes(source, parts[1][name])
    assert alone.root.metric is Metric.AGREEMENT
    assert (alone.root.source_accuracy, alone.root.steps) == (1.0, 0)
    assert alone.manifest.metric is Metric.AGREEMENT
    assert alone.package.accuracy == pytest.approx(np.mean(predicted == true))
    assert 0.1 < alone.package.accuracy < 1
    scores = {score.metric: score.value for score in alone.package.output_scores}
    assert scores[Metric.BALANCED_AGREEMENT] == pytest.approx(recall_score(true, predicted, average="macro"))
    assert "your unlabelled inputs" in alone.package.note


@pytest.mark.slow
def test_labelled_test_data_gives_the_accuracy_of_a_network_chosen_by_agreement(
    tmp_path: Path, source: keras.Model
) -> None:
    np.savez(tmp_path / "photos.npz", x=digits(UNLABELLED)[0])
    images, classes = digits(TEST)
    np.savez(tmp_path / "test.npz", x=images, y=classes)
    files = {part: str(tmp_path / f"{part}.npz") for part in ("photos", "test")}
    made = ported(tmp_path, DataSource(unlabelled=files["photos"], test=files["test"]))
    assert made.manifest.metric is Metric.ACCURACY
    assert made.package.accuracy == pytest.approx(np.mean(made.predicted_classes(images) == classes))
    assert made.package.validation_metric is Metric.AGREEMENT
    assert made.root.source_accuracy == 1.0
    assert np.mean(predicted_classes(source, images) == classes) < 1
    assert set(made.data.answered) == {"train"}
    assert "agreement with the source, without labels" in made.package.note


@pytest.mark.slow
def test_labelled_validation_data_gives_the_accuracy_during_adaptation(
    tmp_path: Path, source: keras.Model
) -> None:
    np.savez(tmp_path / "photos.npz", x=digits(UNLABELLED)[0])
    images, classes = digits(TEST)
    np.savez(tmp_path / "test.npz", x=images, y=classes)
    settings = DataSettings(validation=str(tmp_path / "test.npz"))
    data = DataSource(
        unlabelled=str(tmp_path / "photos.npz"), test=str(tmp_path / "test.npz"), settings=settings
    )
    made = ported(tmp_path, data)
    assert made.root.source_accuracy == pytest.approx(np.mean(predicted_classes(source, images) == classes))
    assert made.package.validation_metric is Metric.ACCURACY
    assert "without labels" not in made.package.note


def test_unlabelled_inputs_next_to_training_data_are_only_used_for_distillation(
    tmp_path: Path, source: keras.Model
) -> None:
    images, _ = digits(UNLABELLED)
    np.savez(tmp_path / "photos.npz", x=images)
    checkpoints = Checkpoints(artifacts_of(tmp_path))
    setups = TrainingSetups(SourceCache(lambda _: None), checkpoints)
    labelled = DataSource(train="builtin:digits-train", test="builtin:digits-test")
    data = labelled.model_copy(update={"unlabelled": str(tmp_path / "photos.npz")})
    teacher = checkpoints.save(source)
    with_more, without = (setups.prepare(taught(teacher, data=each), Params()) for each in (data, labelled))
    count, (said,) = len(without.train), with_more.train.targets
    np.testing.assert_array_equal(with_more.train.targets[said][:count], without.train.targets[said])
    assert set(with_more.train.targets[said][count:]) == {-2}
    (inputs,) = with_more.train.inputs.values()
    np.testing.assert_array_equal(inputs[count:], images)
    np.testing.assert_array_equal(with_more.validation.targets[said], without.validation.targets[said])
    assert with_more.teacher is not None
    expected = source.predict(images, verbose=0)
    np.testing.assert_allclose(with_more.teacher[said][count:], expected, atol=1e-5)
    not_taught = setups.prepare(taught(teacher, data=data), Params(distillation=0), distilled=False)
    assert len(not_taught.train) == count


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"pixels": np.zeros((9, 8, 8, 1))}, "no array"),
        ({"x": np.full((9, 8, 8, 1), np.inf)}, "NaN or infinity"),
        ({"x": np.zeros((2, 8, 8, 1))}, "at least 3, one for training, one for validation"),
    ],
)
def test_problems_with_unlabelled_inputs_are_reported_at_inspection(
    tmp_path: Path, arrays: dict[str, Figures], text: str
) -> None:
    np.savez(tmp_path / "photos.npz", **arrays)  # type: ignore[arg-type]
    data = DataSource(unlabelled=str(tmp_path / "photos.npz"), labelled=False)
    inspection: Any = TaskRunner(artifacts_of(tmp_path), lambda _: None).run(
        InspectTask(recipe=recipe(MODEL, data=data, **COMMON), measures=("accuracy",))
    )
    (problem,) = inspection.problems
    assert problem.place == "dataset.unlabelled"
    assert text in str(problem)


@pytest.mark.slow
def test_at_inspection_the_source_agrees_with_itself_completely(tmp_path: Path) -> None:
    np.savez(tmp_path / "photos.npz", x=digits(UNLABELLED)[0])
    data = DataSource(unlabelled=str(tmp_path / "photos.npz"), labelled=False)
    runner = TaskRunner(artifacts_of(tmp_path), lambda _: None)
    inspection: Any = runner.run(
        InspectTask(recipe=recipe(MODEL, data=data, **COMMON), measures=("accuracy",))
    )
    assert inspection.problems == ()
    assert inspection.metric is Metric.AGREEMENT
    assert (inspection.estimates.accuracy, inspection.estimates.source_steps) == (1.0, 0)
