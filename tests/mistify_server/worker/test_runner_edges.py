"""Edges of a goal tree, one after another: independence from earlier tasks, and branches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.data import Dataset, split
from executors.readers.loading import load_dataset
from executors.structure import analyse
from executors.structure.signature import signature_of
from executors.training.evaluation import evaluate
from executors.training.trainer import Trainer
from mistify.config.data.targets import Scores
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.axes import costs_of
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile, by_name
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.package_spec import PackageSpec
from mistify.package.manifest import Manifest
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.results import AdaptResult
from mistify_server.tasks.tasks import AdaptTask, BranchTask, PackageTask, SourceTask
from mistify_server.worker.adaptation.edge import EdgeOutcome
from mistify_server.worker.adaptation.widening import is_widened
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import COMMON, DATA, SETTINGS, recipe, saved_source, taught
from tests.mistify_server.recipes import by_recipe
from tests.support.targets import overall

layers = keras.layers


def deeper() -> keras.Model:
    """Return a network with three convolutions; the first takes a tenth of the multiply-adds."""
    inputs = x = keras.Input((8, 8, 1))
    for place, width in enumerate((4, 12, 12)):
        x = layers.Conv2D(width, 3, use_bias=False, name=f"conv_{place}")(x)
        x = layers.ReLU()(layers.BatchNormalization(name=f"norm_{place}")(x))
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))


class Tree:
    """The root of a goal tree, with helpers to create and run its edges."""

    def __init__(self, directory: Path, model: keras.Model | None = None) -> None:
        self._artifacts = artifacts_of(directory)
        task = SourceTask(recipe=recipe(saved_source(directory, model)), exceed={})
        self.root: Any = self.runner().run(task)

    def runner(self) -> TaskRunner:
        """Return a new runner with the same artifacts."""
        return TaskRunner(self._artifacts, lambda progress: None)

    def read(self, artifact: str) -> bytes:
        """Return the content of an artifact."""
        return self.path(artifact).read_bytes()

    def path(self, artifact: str) -> Path:
        """Return the path of an artifact."""
        return self._artifacts.path(artifact)

    def edge(self, parent: str, share: float, **changes: Any) -> AdaptTask:
        """Return an edge from a checkpoint to a share of the root's multiply-adds."""
        return AdaptTask(
            recipe=taught(self.root.teacher, seed=7, settings={**SETTINGS, **changes}),
            parent=parent,
            budget={"flops": share * self.root.root_costs["flops"]},
        )

    def network(self, done: Any) -> keras.Model:
        """Return the network of an edge, asserting that its goal is met."""
        assert done.met, done.reason
        return keras.models.load_model(self._artifacts.path(done.checkpoint))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


def test_edges_are_measured_with_the_threads_of_their_goal(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    def latency_meter(quantizations: Any, train: Any, threads: int) -> Any:
        used.append(threads)
        return lambda network: 1e-3

    monkeypatch.setattr("mistify_server.worker.edge_tasks.latency_meter", latency_meter)
    for axis, threads in (("latency_ms@host@4-threads", 4), ("latency_ms@host", 1)):
        used.clear()
        hardware = by_name([HOST, HOST.with_threads(4)])
        edge = by_recipe(tree.edge(tree.root.root, 1.0), hardware=hardware)
        task = edge.model_copy(update={"budget": {axis: 1e3}})
        assert isinstance(done := tree.runner().run(task), AdaptResult)
        assert done.met
        assert set(used) == {threads}


def assert_equal(network: keras.Model, expected: keras.Model) -> None:
    for left, right in zip(network.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def validation_data(model: keras.Model) -> Dataset:
    """Return the validation data: by default a tenth of the training data."""
    return split(load_dataset(DATA.train, signature_of(model)), 0.1)[1]


def with_dropout() -> keras.Model:
    """Return a classifier with random numbers in the network itself during training."""
    inputs = keras.Input((8, 8, 1))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, use_bias=False)(inputs)))
    x = layers.Dropout(0.3)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(10, "softmax")(x))


def path(tree: Tree, runner: Callable[[], TaskRunner]) -> list[str]:
    """Return the checkpoints of two goals on one path, each adapted by a runner."""
    parent: Any = runner().run(tree.edge(tree.root.root, 0.8))
    child: Any = runner().run(tree.edge(parent.checkpoint, 0.5))
    return [parent.checkpoint, child.checkpoint]


def test_a_path_does_not_depend_on_earlier_tasks_of_its_workers(tmp_path: Path) -> None:
    """With a new worker for each edge, one worker for both, and the same worker again."""
    tree = Tree(tmp_path, with_dropout())
    one = tree.runner()
    assert path(tree, tree.runner) == path(tree, lambda: one) == path(tree, lambda: one)


@pytest.mark.slow
def test_a_package_does_not_depend_on_earlier_tasks_of_its_worker(tmp_path: Path) -> None:
    tree = Tree(tmp_path, with_dropout())
    one = tree.runner()
    _, checkpoint = path(tree, lambda: one)
    precision = QuantizationConfig.model_validate("int8-qat")
    task = PackageTask(
        recipe=taught(tree.root.teacher),
        checkpoint=checkpoint,
        job_id="job-1",
        goal_id="whole",
        spec=PackageSpec({}, quantization=precision),
        costs=tree.root.root_costs,
        accuracy=tree.root.teacher_accuracy,
    )
    results: list[Any] = [runner.run(task) for runner in (tree.runner(), one, one)]
    assert len({result.files["serve.tflite"] for result in results}) == 1


def test_a_failed_edge_does_not_affect_the_next(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training diverges when the executor is partway to the child."""
    runner = tree.runner()
    parent: Any = runner.run(tree.edge(tree.root.root, 0.9))
    onward = tree.edge(parent.checkpoint, 0.7)

    def diverge(trainer: Trainer) -> None:
        raise FloatingPointError("the training loss became nan")

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "apply_average", diverge)
        with pytest.raises(FloatingPointError):
            runner.run(onward)
    again: Any = runner.run(onward)
    alone: Any = tree.runner().run(onward)
    assert again.checkpoint == alone.checkpoint


@pytest.mark.slow
def test_branches_share_an_unchanged_base(tmp_path: Path) -> None:
    """Branches with up to the source's costs share the first layers of the source."""
    tree = Tree(tmp_path, deeper())
    runner = tree.runner()
    goal: Any = runner.run(tree.edge(tree.root.root, 0.625))
    edge = tree.edge(goal.checkpoint, 0.625).model_dump(exclude={"kind", "targets", "planned_steps"})
    shares = (0.4, 1.0, 1.6)
    made: Any = runner.run(BranchTask(**{**edge, "shares": shares, "costs": goal.costs}))
    assert [branch.share for branch in made.branches] == list(shares)
    networks = [keras.models.load_model(tree.path(branch.checkpoint)) for branch in made.branches]
    assert made.base
    for network in networks:
        for name in made.base:
            assert_equal(network.get_layer(name), networks[2].get_layer(name))
    source = keras.models.load_model(tree.path(tree.root.teacher))
    assert {"conv_0", "norm_0"} <= set(made.base)
    assert networks[0].get_layer("conv_0").filters == source.get_layer("conv_0").filters == 4
    for share, branch, network in zip(shares, made.branches, networks, strict=True):
        flops = analyse(network).network().flops
        assert branch.costs["flops"] == flops
        assert 0.5 * share * edge["budget"]["flops"] < flops <= share * edge["budget"]["flops"]
    assert made.reason == ""

    packaged: Any = runner.run(
        PackageTask(
            recipe=taught(tree.root.teacher),
            checkpoint=goal.checkpoint,
            branches=made,
            job_id="job-1",
            goal_id="whole",
            spec=PackageSpec(edge["budget"]),
            costs=goal.costs,
            accuracy=goal.accuracy,
        )
    )
    manifest = Manifest.model_validate_json(tree.read(packaged.files["manifest.json"]))
    assert manifest.default_branch == 1
    own = evaluate(networks[1], validation_data(networks[1]))
    assert manifest.validation_accuracy == pytest.approx(own, abs=1e-6)
    assert manifest.achieved["flops"] == made.branches[1].costs["flops"]
    test = load_dataset(DATA.test, signature_of(networks[0]))
    for branch, network in zip(manifest.branches, networks, strict=True):
        assert branch.accuracy == pytest.approx(evaluate(network, test), abs=2 / len(test))
        validation = validation_data(network)
        expected = pytest.approx(evaluate(network, validation), abs=2 / len(validation))
        assert branch.validation_accuracy == expected
    reported = [
        (branch.share, branch.achieved, branch.measured, branch.accuracy) for branch in packaged.branches
    ]
    assert reported == [(one.share, one.achieved, one.measured, one.accuracy) for one in manifest.branches]


def test_the_network_of_the_goal_is_the_largest_branch_if_no_budget_is_larger(tmp_path: Path) -> None:
    tree = Tree(tmp_path, deeper())
    runner = tree.runner()
    goal: Any = runner.run(tree.edge(tree.root.root, 0.8))
    edge = tree.edge(goal.checkpoint, 0.8).model_dump(exclude={"kind", "targets", "planned_steps"})
    made: Any = runner.run(BranchTask(**{**edge, "shares": (0.5, 1.0), "costs": goal.costs}))
    small, own = (keras.models.load_model(tree.path(branch.checkpoint)) for branch in made.branches)
    assert_equal(own, tree.network(goal))
    assert made.branches[1].costs == goal.costs
    assert made.base
    for name in made.base:
        assert_equal(small.get_layer(name), own.get_layer(name))


def test_only_branches_larger_than_the_source_are_trained_repeatedly(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From twice the source's costs to 0.8 of them, and to the goal's half."""
    used: list[tuple[bool, AdaptationExecutor]] = []

    def run_edge(executor: AdaptationExecutor, assignment: Assignment, *_: Any, **__: Any) -> EdgeOutcome:
        used.append((is_widened(assignment), executor))
        costs = costs_of(analyse(assignment.model).network(), assignment.profiles)
        return EdgeOutcome(assignment.model, costs, Scores(1.0), steps=1, met=True, reason="")

    monkeypatch.setattr("mistify_server.worker.edge_tasks.run_edge", run_edge)
    edge = tree.edge(tree.root.root, 0.5).model_dump(exclude={"kind", "targets", "planned_steps"})
    shares = (1.0, 1.2, 1.6, 2.4, 3.0, 4.0)
    tree.runner().run(BranchTask(**{**edge, "shares": shares, "costs": tree.root.root_costs}))
    assert [growing for growing, _ in used] == [True, True, True, False, False]
    _, first, second, third, fourth = (id(executor) for _, executor in used)
    assert first == second != third == fourth


@pytest.mark.slow
def test_branches_share_no_layer_that_exceeds_the_smallest_budget(tmp_path: Path) -> None:
    """The source's first layers alone exceed the limit on parameters."""
    keras.utils.set_random_seed(0)
    inputs = x = keras.Input((8, 8, 1))
    for width, stride in ((32, 4), (8, 1)):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 2, stride, use_bias=False)(x)))
    model = keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))
    tree = Tree(tmp_path, model)
    runner = tree.runner()
    budget = {"params": 0.4 * tree.root.root_costs["params"]}
    task = tree.edge(tree.root.root, 1.0).model_copy(update={"budget": budget})
    goal: Any = runner.run(task)
    edge = task.model_dump(exclude={"kind", "targets", "planned_steps"})
    made: Any = runner.run(BranchTask(**{**edge, "shares": (0.3, 1.0, 2.0), "costs": goal.costs}))
    assert made.reason == ""
    for branch in made.branches:
        assert branch.costs["params"] <= branch.share * budget["params"]


@pytest.mark.slow
def test_branches_share_no_layer_tied_to_later_ones_by_a_sum(tmp_path: Path) -> None:
    """Such layers could not be cut separately; the goal's own network and the source are branches."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1))

    def convolved(x: Any) -> Any:
        return layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(x))

    x = layers.ReLU()(convolved(inputs))
    for _ in range(3):
        x = layers.ReLU()(layers.Add()([x, convolved(x)]))
    model = keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))
    tree = Tree(tmp_path, model)
    runner = tree.runner()
    goal: Any = runner.run(tree.edge(tree.root.root, 0.5))
    edge = tree.edge(goal.checkpoint, 0.5).model_dump(exclude={"kind", "targets", "planned_steps"})
    made: Any = runner.run(BranchTask(**{**edge, "shares": (0.5, 1.0, 2.0), "costs": goal.costs}))
    assert made.base == ()
    _, own, largest = (keras.models.load_model(tree.path(branch.checkpoint)) for branch in made.branches)
    assert_equal(own, tree.network(goal))
    assert made.branches[1].costs == goal.costs
    assert largest.count_params() == model.count_params()


@pytest.mark.sampled
@pytest.mark.parametrize("precision", ["int8", "int8-qat"])
def test_a_checkpoint_is_packaged_in_int8(tree: Tree, precision: str) -> None:
    root = tree.root
    result: Any = tree.runner().run(
        PackageTask(
            recipe=taught(root.teacher, hardware=by_name([HOST, NominalProfile("pi", 5.0, 1.0)])),
            checkpoint=root.root,
            job_id="job-1",
            goal_id="whole",
            spec=PackageSpec({}, quantization=QuantizationConfig.model_validate(precision)),
            costs=root.root_costs,
            accuracy=root.teacher_accuracy,
        )
    )
    assert result.measured.keys() == {"latency_ms@host", "latency_ms@host@int8"}
    assert result.achieved["size_bytes@int8"] == pytest.approx(root.root_costs["size_bytes@int8"], rel=0.4)
    manifest = Manifest.model_validate_json(tree.read(result.files["manifest.json"]))
    assert (manifest.quantization, manifest.accuracy) == (precision, result.accuracy)
    assert abs(result.accuracy - root.teacher_accuracy) < 0.1
    assert manifest.measured == result.measured


@pytest.mark.parametrize("algorithm", ["nested", "adaptivenet"])
def test_packages_are_trained_even_if_goals_are_not_tuned(
    tree: Tree, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training for the package does not depend on the algorithm, unless the config disables it."""

    def package_model(*_: Any, training_steps: int, **__: Any) -> None:
        raise LookupError(training_steps)

    monkeypatch.setattr("mistify_server.worker.package_tasks.package_model", package_model)
    runner, quantization = tree.runner(), QuantizationConfig.model_validate("int8-qat")
    task = PackageTask(
        recipe=taught(tree.root.teacher, algorithm=algorithm),
        checkpoint=tree.root.root,
        job_id="job-1",
        goal_id="whole",
        spec=PackageSpec({}, quantization=quantization),
        costs=tree.root.root_costs,
        accuracy=tree.root.teacher_accuracy,
    )
    for config, steps in ({}, 600), ({"tune_steps": 7}, 7), ({"tune_steps": 0}, 0):
        with pytest.raises(LookupError, match=rf"^{steps}$"):
            runner.run(by_recipe(task, settings=config))


def test_only_packaging_reads_the_test_data(tmp_path: Path) -> None:
    """Tuning, adapting and branches work although the file is missing."""
    blind = DATA.model_copy(update={"test": str(tmp_path / "missing.npz")})
    artifacts = artifacts_of(tmp_path)
    runner = TaskRunner(artifacts, lambda progress: None)
    common = {**COMMON, "data": blind}
    root: Any = runner.run(SourceTask(recipe=recipe(saved_source(tmp_path, deeper()), **common), exceed={}))
    edge = {
        "recipe": taught(root.teacher, **{**common, "seed": 7}),
        "budget": {"flops": 0.8 * root.root_costs["flops"]},
    }
    goal: Any = runner.run(AdaptTask(parent=root.root, targets=overall(0.999), **edge))
    made: Any = runner.run(BranchTask(**edge, parent=goal.checkpoint, shares=(0.5, 1.0), costs=goal.costs))
    assert len(made.branches) == 2
    package = PackageTask(
        recipe=taught(root.teacher, **common),
        checkpoint=goal.checkpoint,
        job_id="job-1",
        goal_id="whole",
        spec=PackageSpec({}),
        costs=goal.costs,
        accuracy=goal.accuracy,
    )
    with pytest.raises(MistifyError, match=r"missing\.npz") as caught:
        runner.run(package)
    assert caught.value.code is ErrorCode.INVALID_DATASET
