"""Goals of a prepared network: their slices are cut, not converted, and equal what conversion makes."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from executors.algorithms.nnfactory.supernet import Supernet
from executors.structure import analyse
from mistify.config.data.dataset import DataSettings
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.task import TaskConfig
from mistify.costs.budget import FLOPS, memory_axis
from mistify.costs.catalogue import HOST
from mistify.costs.quantization import Quantization
from mistify.jobs.package_spec import PackageSpec
from mistify.package.factory import ASSEMBLER, SUPERNET
from mistify.package.manifest import NETWORK, Manifest
from mistify.tflite.session import Session
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.recipe import Recipe, TaughtRecipe
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import AdaptTask, PackageTask, PrepareTask, SourceTask
from mistify_server.worker import prepared_conversions
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.tflite.flatbuffer import operators
from mistify_server.worker.packaging.tflite.runner import signatures
from mistify_server.worker.runner import TaskRunner
from tests.end_to_end.test_property_tasks import SPACE, write_data, write_network

TOP = TaskConfig(properties=("bright", "top"))
SIDE = TaskConfig(properties=("dark", "side"))

#: What two packages of one network differ in: when and how they were made and measured.
VARYING = {"created", "files", "latency", "measured", "achieved", "note", "versions"}

#: The largest difference from the supernet with gates, as a share of the largest output.
TOLERANCES = {
    Quantization.NONE: 1e-5,
    Quantization.FLOAT16: 3e-3,
    Quantization.DYNAMIC: 0.05,
    Quantization.INT8: 0.15,
}


class Job:
    """A prepared supernet, and goals of it."""

    def __init__(self, directory: Path) -> None:
        write_network(directory / "net.keras")
        for name, count in (("train", 120), ("test", 60)):
            write_data(directory / f"{name}.npz", count, seed=len(name))
        (directory / "tasks.json").write_text(json.dumps(SPACE))
        self.artifacts = artifacts_of(directory / "store")
        recipe = Recipe(
            model=ModelSource(path=str(directory / "net.keras")),
            data=DataSource(
                train=str(directory / "train.npz"),
                test=str(directory / "test.npz"),
                settings=DataSettings(tasks=str(directory / "tasks.json")),
            ),
            algorithm="nnfactory",
            settings={"answer_steps": 4, "gate_steps": 4, "batch_size": 16, "least_limit": 0.2},
            hardware={HOST.name: HOST},
            seed=0,
        )
        root = self.run(SourceTask(recipe=recipe, exceed={}))
        self.recipe = recipe.taught_by(root.teacher)
        self.root, self.costs = root.root, root.root_costs
        made = self.run(PrepareTask(recipe=self.recipe, least={}))
        self.recipe = self.recipe.model_copy(update={"prepared": made.prepared})

    def run(self, task: Any) -> Any:
        """Run a task in a worker of its own."""
        return TaskRunner(self.artifacts, lambda progress: None).run(task)

    def adapted(
        self, task: TaskConfig, budget: dict[str, float], precision: Quantization, **settings: Any
    ) -> Any:
        quantizations = (QuantizationConfig(precision=precision),)
        return self.run(
            AdaptTask(
                recipe=self._with(settings),
                parent=self.root,
                budget=budget,
                task=task,
                quantizations=quantizations,
            )
        )

    def _with(self, settings: dict[str, Any]) -> TaughtRecipe:
        return self.recipe.model_copy(update={"settings": {**self.recipe.settings, **settings}})

    def packaged(
        self, task: TaskConfig, done: Any, precision: Quantization, checkpoint: str = "", **settings: Any
    ) -> Any:
        spec = PackageSpec({}, quantization=QuantizationConfig(precision=precision), task=task)
        package = PackageTask(
            recipe=self._with(settings), job_id="job", goal_id="goal", spec=spec,
            checkpoint=checkpoint or done.checkpoint, costs=done.costs, accuracy=done.accuracy,
        )  # fmt: skip
        files = self.run(package).files
        content = {name: self.artifacts.path(artifact).read_bytes() for name, artifact in files.items()}
        return Manifest.model_validate_json(content["manifest.json"]), content

    def converted(self, checkpoint: str) -> str:
        """A checkpoint of the same network that does not say how it was cut."""
        checkpoints = Checkpoints(self.artifacts)
        return checkpoints.save(checkpoints.load(checkpoint))

    def masked_outputs(self, task: TaskConfig, images: np.ndarray) -> list[np.ndarray]:
        """What the supernet with gates answers within each limit that is tried."""
        source = analyse(Checkpoints(self.artifacts).load(self.recipe.teacher))
        supernet = Supernet.loaded(self.artifacts.path(self.recipe.prepared).read_bytes(), source)
        limits = supernet.quality.tried_limits()
        inputs = {next(iter(supernet.network.inputs)).name: images}
        return [supernet.outputs(inputs, one) for one in supernet.assemblies(supernet.encoded(task), limits)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


def images(count: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, 8, 8, 1)).astype(np.float32)


def answers(network: bytes) -> np.ndarray:
    session = Session(network, threads=1)
    ((name, _),) = session.inputs.items()
    ((_, answer),) = session({name: images(16)}).items()
    return answer


def operators_of(network: bytes) -> list[Any]:
    """The operators of a network, with the types and shapes of what they read."""
    return [
        (operator.name, [(tensor.type, tuple(tensor.shape)) for tensor in operator.inputs])
        for operator in operators(network)
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_package_answers_as_the_supernet_with_gates(job: Job, precision: Quantization) -> None:
    done = job.adapted(TOP, {FLOPS: 0.6 * job.costs[FLOPS]}, precision)
    assert done.met
    assert done.costs[FLOPS] <= 0.6 * job.costs[FLOPS]
    _, network = job.packaged(TOP, done, precision)
    references = job.masked_outputs(TOP, images(16))
    errors = [np.abs(answers(network[NETWORK]) - one).max() / np.abs(one).max() for one in references]
    assert min(errors) <= TOLERANCES[precision]


@pytest.mark.sampled
@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.FLOAT16, Quantization.DYNAMIC])
def test_a_package_is_the_one_that_conversion_makes(job: Job, precision: Quantization) -> None:
    done = job.adapted(SIDE, {FLOPS: 0.7 * job.costs[FLOPS]}, precision)
    (manifest, content), (expected, other) = (
        job.packaged(SIDE, done, precision, checkpoint)
        for checkpoint in (done.checkpoint, job.converted(done.checkpoint))
    )
    network, converted = content[NETWORK], other[NETWORK]
    assert network != converted
    np.testing.assert_allclose(answers(network), answers(converted), atol=TOLERANCES[precision])
    assert signatures(network) == signatures(converted)
    assert operators_of(network) == operators_of(converted)
    assert manifest.model_dump(exclude=VARYING) == expected.model_dump(exclude=VARYING)
    for axis, cost in expected.achieved.items():
        # The file names each tensor of the whole network.
        assert manifest.achieved[axis] == pytest.approx(cost, abs=2048), axis


def test_only_the_first_goal_converts(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has a worker of its own: the converted network comes from the store."""
    axis = memory_axis(Quantization.NONE)
    budget = {FLOPS: 0.8 * job.costs[FLOPS], axis: 0.8 * job.costs[axis], "latency_ms@host": 1e3}
    first = job.adapted(TOP, budget, Quantization.NONE)
    _, expected = job.packaged(TOP, first, Quantization.NONE, inside=True)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("something was converted")

    monkeypatch.setattr(tf.lite.TFLiteConverter, "from_saved_model", fail)
    done = job.adapted(SIDE, budget, Quantization.NONE)
    assert done.met
    assert done.costs[axis] <= budget[axis]
    manifest, content = job.packaged(SIDE, done, Quantization.NONE, inside=True)
    assert manifest.achieved[axis] == done.costs[axis]
    assert [content[name] for name in (SUPERNET, ASSEMBLER)] == [
        expected[name] for name in (SUPERNET, ASSEMBLER)
    ]
    monkeypatch.setattr(prepared_conversions, "_environment", lambda: ["another version of TensorFlow"])
    with pytest.raises(AssertionError, match="something was converted"):
        job.adapted(SIDE, budget, Quantization.NONE)


def test_a_limit_below_the_smallest_slice_is_reported(job: Job) -> None:
    done = job.adapted(TOP, {FLOPS: 1.0}, Quantization.NONE)
    assert not done.met
    assert re.fullmatch(r"multiply-adds \S+ over 1 with the smallest slice for bright, top", done.reason)


def test_a_slice_that_is_tuned_is_converted(job: Job) -> None:
    budget = {FLOPS: 0.6 * job.costs[FLOPS]}
    done = job.adapted(TOP, budget, Quantization.NONE, tune_steps=2)
    assert done.steps == 2
    assert Checkpoints(job.artifacts).units(done.checkpoint) is None
    _, network = job.packaged(TOP, done, Quantization.NONE)
    model = Checkpoints(job.artifacts).load(done.checkpoint)
    np.testing.assert_allclose(answers(network[NETWORK]), model(images(16)), atol=1e-4)


def test_a_damaged_network_is_made_again(job: Job) -> None:
    budget = {FLOPS: 0.6 * job.costs[FLOPS]}
    first = job.adapted(TOP, budget, Quantization.NONE)
    _, network = job.packaged(TOP, first, Quantization.NONE)
    (part,) = job.artifacts.directory.glob("preparations/*/cuttable-none-float32")
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    assert job.packaged(TOP, first, Quantization.NONE)[1][NETWORK] == network[NETWORK]
    assert part.read_bytes() == content
