"""Tasks of some classes, from the root to the package, with every algorithm."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from executors.contract.algorithm import built_in
from executors.readers.loading import load_dataset
from executors.structure.signature import signature_of
from mistify.config.data.dataset import DataSettings
from mistify.config.task import TaskConfig
from mistify.jobs.package_spec import PackageSpec
from mistify.package.manifest import Manifest
from mistify_client.cli.main import app
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.tasks import AdaptTask, PackageTask, PrepareTask, SourceTask
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import DATA, recipe, saved_source, taught
from tests.mistify_server.worker.test_runner_edges import deeper

pytestmark = pytest.mark.slow

layers = keras.layers

CLASSES = (3, 5, 8)
TASK = TaskConfig(classes=tuple(map(str, CLASSES)))

#: Settings with which each algorithm is quick.
SETTINGS: dict[str, Any] = {"source_steps": 4, "adapt_steps": 4, "tune_steps": 2, "max_steps": 8}
OWN: dict[str, dict[str, Any]] = {
    "adaptivenet": {"distil_steps": 4, "path_steps": 4},
    "crowdhmt": {"distil_steps": 4, "path_steps": 4},
    "chamnet": {"samples": 4, "init_population": 4},
    "morphnet": {"cuts": 2},
    "nested": {"segment_steps": 8, "batch_size": 32},
}

ALGORITHMS = sorted(name for name, known in built_in().items() if not known.serves_tasks)


def wide() -> keras.Model:
    """Return a network with enough units for gates."""
    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(32, 3, activation="relu")(inputs)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(16, 3, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(10, "softmax")(x))


class Job:
    """The root of a goal tree, and what makes its edges for one task."""

    def __init__(self, directory: Path, model: keras.Model) -> None:
        self._artifacts = artifacts_of(directory)
        self.root = self.run(SourceTask(recipe=recipe(saved_source(directory, model)), exceed={}))

    def run(self, task: Any) -> Any:
        done = TaskRunner(self._artifacts, lambda progress: None).run(task)
        assert done.kind != "failure", done
        return done

    def recipe(self, algorithm: str, prepared: str | None = None) -> Any:
        settings = SETTINGS | OWN.get(algorithm, {})
        return taught(self.root.teacher, algorithm=algorithm, settings=settings, prepared=prepared)

    def network(self, artifact: str) -> keras.Model:
        return keras.models.load_model(self._artifacts.path(artifact))

    def content(self, artifact: str) -> bytes:
        return self._artifacts.path(artifact).read_bytes()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"), deeper())


def examples(model: keras.Model) -> tuple[np.ndarray, np.ndarray]:
    """The test images of the classes, and their places among them."""
    test = load_dataset("builtin:digits-test", signature_of(model))
    labels = next(iter(test.targets.values()))
    chosen = np.isin(labels, CLASSES)
    return next(iter(test.inputs.values()))[chosen], np.searchsorted(CLASSES, labels[chosen])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_edge_ends_at_a_network_of_these_classes(job: Job, algorithm: str) -> None:
    budget = {"flops": 0.6 * job.root.root_costs["flops"]}
    prepare = PrepareTask(recipe=job.recipe(algorithm), least=budget, task=TASK)
    made = job.recipe(algorithm, job.run(prepare).prepared)
    done = job.run(AdaptTask(recipe=made, parent=job.root.root, budget=budget, task=TASK))
    network = job.network(done.checkpoint)
    assert network.output_shape == (None, 3)
    assert done.costs["flops"] <= budget["flops"]
    below = {"flops": 0.5 * budget["flops"]}
    lower = job.run(AdaptTask(recipe=made, parent=done.checkpoint, budget=below, task=TASK))
    assert job.network(lower.checkpoint).output_shape == (None, 3)


def test_a_package_has_three_labels_and_an_accuracy_on_their_examples(job: Job) -> None:
    budget = {"flops": 0.6 * job.root.root_costs["flops"]}
    made = job.recipe("morphnet")
    done = job.run(AdaptTask(recipe=made, parent=job.root.root, budget=budget, task=TASK))
    spec = PackageSpec(budget, task=TASK)
    package = PackageTask(
        recipe=made, job_id="job", goal_id="goal", spec=spec, checkpoint=done.checkpoint, costs=done.costs,
        accuracy=done.accuracy,
    )  # fmt: skip
    packaged = job.run(package)
    manifest = Manifest.model_validate_json(job.content(packaged.files["manifest.json"]))
    network = job.network(done.checkpoint)
    images, places = examples(job.network(job.root.teacher))
    right = np.asarray(network(images)).argmax(axis=1) == places
    assert (manifest.task, [*manifest.labels.values()]) == (TASK, [("3", "5", "8")])
    assert manifest.outputs[0].shape == (-1, 3)
    assert manifest.accuracy_examples == len(images)
    assert manifest.accuracy == pytest.approx(right.mean(), abs=1e-3)
    widths = {change.name: (change.before.width, change.after.width) for change in packaged.layers.layers}
    assert (10, 3) in widths.values()


def test_the_teacher_of_a_task_is_cut_and_not_changed(job: Job) -> None:
    """With no step of training, the network computes what the teacher does, for these classes alone."""
    before = job.content(job.root.teacher)
    quiet = job.recipe("uniform").model_copy(update={"settings": {"adapt_steps": 0, "tune_steps": 0}})
    budget = {"flops": 2 * job.root.root_costs["flops"]}
    done = job.run(AdaptTask(recipe=quiet, parent=job.root.root, budget=budget, task=TASK))
    teacher = job.network(job.root.teacher)
    images, _ = examples(teacher)
    expected = np.asarray(teacher(images))[:, CLASSES]
    np.testing.assert_allclose(
        job.network(done.checkpoint)(images), expected / expected.sum(axis=1, keepdims=True), atol=1e-5
    )
    assert job.content(job.root.teacher) == before


def test_a_factory_has_the_names_in_a_file(tmp_path: Path) -> None:
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    (tmp_path / "labels.txt").write_text("\n".join(names))
    labelled = DATA.model_copy(update={"settings": DataSettings(labels=str(tmp_path / "labels.txt"))})
    job = Job(tmp_path, wide())
    made = job.recipe("nnfactory").model_copy(
        update={"data": labelled, "settings": {"gate_steps": 8, "inside": True}}
    )
    made = made.model_copy(update={"prepared": job.run(PrepareTask(recipe=made, least={})).prepared})
    task = TaskConfig(classes=("three", "eight"))
    budget = {"flops": job.root.root_costs["flops"]}
    done = job.run(AdaptTask(recipe=made, parent=job.root.root, budget=budget, task=task))
    package = PackageTask(
        recipe=made, job_id="job", goal_id="goal", spec=PackageSpec(budget, task=task),
        checkpoint=done.checkpoint, costs=done.costs, accuracy=done.accuracy,
    )  # fmt: skip
    packaged = job.run(package)
    manifest = Manifest.model_validate_json(job.content(packaged.files["manifest.json"]))
    assert [*manifest.labels.values()] == [("three", "eight")]
    (tmp_path / "package").mkdir()
    for name, artifact in packaged.files.items():
        (tmp_path / "package" / name).write_bytes(job.content(artifact))
    listed = CliRunner().invoke(app, ["tasks", "--package", str(tmp_path / "package"), "--json"])
    told = json.loads(listed.stdout)
    assert told["properties"] == {"classes": list(names)}
    assert told["serves"] == "three, eight"
    assert {name for each in told["tasks"] for name in each.split(", ")} == {*names, "all classes"}
    factory = json.loads((tmp_path / "package" / "factory.json").read_text())
    assert tuple(factory["classes"]) == names
