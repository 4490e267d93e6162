import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from executors.data.loading import load_dataset
from executors.evaluation import evaluate
from executors.search import Predictor, Sample
from executors.signature import signature_of
from executors.structure import analyse
from executors.training import Trainer
from mistify.dataset import Augmentation, DataSettings, Scaling
from mistify.hardware import HOST
from mistify.manifest import Manifest
from mistify.metric import Metric
from mistify.profiles import NominalProfile, by_name
from mistify.quantization import QuantizationConfig
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks import (
    AdaptTask,
    BranchTask,
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


def shallow() -> keras.Model:
    """One convolution."""
    inputs = keras.Input((8, 8, 1))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, use_bias=False)(inputs)))
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))


def deeper() -> keras.Model:
    """Three convolutions; the first takes a tenth of the multiply-adds."""
    inputs = x = keras.Input((8, 8, 1))
    for width in (4, 12, 12):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, use_bias=False)(x)))
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))


def saved_source(directory: Path, model: keras.Model | None = None) -> ModelSource:
    (model or shallow()).save(directory / "source.keras")
    return ModelSource(path=str(directory / "source.keras"))


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    return saved_source(tmp_path)


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
            teacher=root.teacher,
            quantization=QuantizationConfig(),
            goal_id="quarter",
            job_id="job-1",
            budget={},
            accuracy_target=None,
            costs=quarter.costs,
            accuracy=quarter.accuracy,
            seed=0,
            **COMMON,
        )
    )
    assert {"packaging", "other"} <= set(packaged.spent)
    assert packaged.spent["loading"] == 1


@pytest.mark.parametrize("precision", ["int8", "int8-qat"])
def test_a_checkpoint_is_packaged_in_integers(tree: "Tree", precision: str) -> None:
    root = tree.root
    result: Any = tree.workshop().do(
        PackageTask(
            checkpoint=root.root,
            teacher=root.teacher,
            quantization=QuantizationConfig.model_validate(precision),
            goal_id="whole",
            job_id="job-1",
            budget={},
            accuracy_target=None,
            costs=root.root_costs,
            accuracy=root.teacher_accuracy,
            seed=0,
            **{**COMMON, "hardware": by_name([HOST, NominalProfile("pi", 5.0, 1.0)])},
        )
    )
    assert result.measured["latency_ms@pi"] == pytest.approx(10 * result.measured["latency_ms@host"])
    assert result.achieved["size_bytes@int8"] == pytest.approx(root.root_costs["size_bytes@int8"], rel=0.4)
    manifest = Manifest.model_validate_json(tree.read(result.files["manifest.json"]))
    assert (manifest.quantization, manifest.accuracy) == (precision, result.accuracy)
    assert abs(result.accuracy - root.teacher_accuracy) < 0.1
    assert manifest.measured == result.measured


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


class Tree:
    """The root of a goal tree, and what makes and does its edges."""

    def __init__(self, directory: Path, model: keras.Model | None = None) -> None:
        self._artifacts = artifacts_of(directory)
        task = SourceTask(model=saved_source(directory, model), exceed={}, seed=0, **COMMON)
        self.root: Any = self.workshop().do(task)

    def workshop(self) -> Workshop:
        """A new one, of the same artifacts."""
        return Workshop(self._artifacts, lambda progress: None)

    def read(self, artifact: str) -> bytes:
        """The content of an artifact."""
        return self.path(artifact).read_bytes()

    def path(self, artifact: str) -> Path:
        """Where an artifact is."""
        return self._artifacts.path(artifact)

    def edge(self, parent: str, share: float, **changes: Any) -> AdaptTask:
        """From a checkpoint to a share of the root's multiply-adds."""
        return AdaptTask(
            parent=parent,
            teacher=self.root.teacher,
            budget={"flops": share * self.root.root_costs["flops"]},
            accuracy_target=None,
            seed=7,
            **{**COMMON, "algorithm_config": {**SETTINGS, **changes}},
        )

    def network(self, done: Any) -> keras.Model:
        """The network of an edge that has met its goal."""
        assert done.met, done.reason
        return keras.models.load_model(self._artifacts.path(done.checkpoint))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Trainer]:
    """The trainers whose steps were traced."""
    found: list[Trainer] = []
    steps = Trainer._steps

    def noted(trainer: Trainer, *args: Any) -> Any:
        found.append(trainer)
        return steps(trainer, *args)

    monkeypatch.setattr(Trainer, "_steps", noted)
    return found


def assert_equal(network: keras.Model, expected: keras.Model) -> None:
    for left, right in zip(network.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_child_of_the_last_goal_goes_on_without_a_new_trace(tree: Tree, traced: list[Trainer]) -> None:
    workshop = tree.workshop()
    parent: Any = workshop.do(tree.edge(tree.root.root, 0.9))
    before = tree.network(parent)
    onward = tree.edge(parent.checkpoint, 0.7)
    traced.clear()
    child: Any = workshop.do(onward)
    assert not traced
    tree.workshop().do(onward)
    assert traced

    assert analyse(tree.network(child)).network().flops == child.costs["flops"] <= onward.budget["flops"]
    assert_equal(tree.network(parent), before)
    assert analyse(before).network().flops == parent.costs["flops"]
    assert evaluate(before, load_dataset(DATA.test, signature_of(before))) == parent.accuracy


@pytest.mark.parametrize("difference", ["parent", "config", "data"])
def test_any_other_edge_starts_from_its_parents_checkpoint(tree: Tree, difference: str) -> None:
    """As in a workshop that has done nothing before."""
    workshop = tree.workshop()
    last: Any = workshop.do(tree.edge(tree.root.root, 0.9))
    weighted = DATA.model_copy(update={"settings": DataSettings(class_weights=(9.0, *[1.0] * 9))})
    task = {
        "parent": tree.edge(tree.root.root, 0.7),
        "config": tree.edge(last.checkpoint, 0.7, learning_rate=0.02),
        "data": tree.edge(last.checkpoint, 0.7).model_copy(update={"data": weighted}),
    }[difference]
    assert_equal(tree.network(workshop.do(task)), tree.network(tree.workshop().do(task)))


def test_an_edge_that_fails_leaves_nothing_to_the_next(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor has come some way towards the child when training diverges."""
    workshop = tree.workshop()
    parent: Any = workshop.do(tree.edge(tree.root.root, 0.9))
    onward = tree.edge(parent.checkpoint, 0.7)

    def diverge(trainer: Trainer) -> None:
        raise FloatingPointError("the training loss became nan")

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "settle", diverge)
        with pytest.raises(FloatingPointError):
            workshop.do(onward)
    assert_equal(tree.network(workshop.do(onward)), tree.network(tree.workshop().do(onward)))


def test_branches_share_a_base_that_nothing_has_changed(tmp_path: Path) -> None:
    """From less than half to twice the goal's budget, and the goal's own network among them as it was."""
    tree = Tree(tmp_path, deeper())
    workshop = tree.workshop()
    goal: Any = workshop.do(tree.edge(tree.root.root, 0.8))
    edge = tree.edge(goal.checkpoint, 0.8).model_dump(exclude={"kind", "accuracy_target"})
    shares = (0.4, 1.0, 2.0)
    made: Any = workshop.do(BranchTask(**{**edge, "shares": shares, "costs": goal.costs}))
    assert [branch.share for branch in made.branches] == list(shares)
    networks = [keras.models.load_model(tree.path(branch.checkpoint)) for branch in made.branches]
    assert made.base
    for network in networks:
        for name in made.base:
            assert_equal(network.get_layer(name), networks[1].get_layer(name))
    assert_equal(networks[1], tree.network(goal))
    for share, branch, network in zip(shares, made.branches, networks, strict=True):
        flops = analyse(network).network().flops
        assert branch.costs["flops"] == flops
        assert 0.5 * share * edge["budget"]["flops"] < flops <= share * edge["budget"]["flops"]
    assert made.reason == ""

    packaged: Any = workshop.do(
        PackageTask(
            checkpoint=goal.checkpoint,
            branches=made,
            teacher=tree.root.teacher,
            quantization=QuantizationConfig(),
            goal_id="whole",
            job_id="job-1",
            budget=edge["budget"],
            accuracy_target=None,
            costs=goal.costs,
            accuracy=goal.accuracy,
            seed=0,
            **COMMON,
        )
    )
    manifest = Manifest.model_validate_json(tree.read(packaged.files["manifest.json"]))
    assert manifest.default_branch == 1
    assert manifest.accuracy == pytest.approx(goal.accuracy)
    test = load_dataset(DATA.test, signature_of(networks[0]))
    for branch, network in zip(manifest.branches, networks, strict=True):
        assert branch.accuracy == pytest.approx(evaluate(network, test), abs=2 / len(test))
    told = [(branch.share, branch.achieved, branch.measured, branch.accuracy) for branch in packaged.branches]
    assert told == [(one.share, one.achieved, one.measured, one.accuracy) for one in manifest.branches]


def regression(directory: Path) -> tuple[ModelSource, DataSource]:
    """A model of three figures that tells their sum, and data of theirs with a mean of 100."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 200), ("test", 40)):
        figures = rng.normal(100, 10, (count, 3))
        lines = [f"{a},{b},{c},{(a + b + c - 300) / 10}" for a, b, c in figures]
        (directory / f"{part}.csv").write_text("\n".join(["a,b,c,sum", *lines]))
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,), name="figures")
    x = layers.Dense(12, "tanh")(inputs)
    keras.Model(inputs, layers.Dense(1, name="sum")(x)).save(directory / "sum.keras")
    scale = Scaling(mean=(100.0,) * 3, std=(10.0,) * 3)
    settings = DataSettings(scale=scale, validation=0.2)
    data = DataSource(train=str(directory / "train.csv"), test=str(directory / "test.csv"), settings=settings)
    return ModelSource(path=str(directory / "sum.keras")), data


def test_figures_are_ported_by_their_squared_error(workshop: Workshop, tmp_path: Path) -> None:
    """The metric, its direction and the scaling go from the config into every task."""
    model, data = regression(tmp_path)
    common = {
        **COMMON,
        "data": data,
        "algorithm_config": {**SETTINGS, "source_steps": 600, "tune_steps": 200},
    }
    found: Any = workshop.do(InspectTask(model=model, **common))
    assert (found.metric, found.problems) == (Metric.MSE, [])
    settings = data.settings.model_copy(update={"metric": found.metric})
    common["data"] = data.model_copy(update={"settings": settings})
    root: Any = workshop.do(SourceTask(model=model, exceed={}, seed=0, **common))
    assert root.teacher_accuracy < 0.2 * root.source_accuracy
    budget = {"flops": 0.7 * root.root_costs["flops"]}
    made: Any
    for target, met in ((4.0, True), (1e-9, False)):
        made = workshop.do(
            AdaptTask(
                parent=root.root,
                teacher=root.teacher,
                budget=budget,
                accuracy_target=target,
                seed=7,
                **common,
            )
        )
        assert made.met is met
    assert re.match(r"mse 0\.\d+ above 0\.0000 after", made.reason)


def test_settings_that_do_not_fit_the_model_are_told(workshop: Workshop, source: ModelSource) -> None:
    settings = DataSettings(
        metric=Metric.MSE,
        class_weights=(1.0, 2.0),
        augment=Augmentation(crop=8),
        scale=Scaling(mean=(1.0, 2.0), std=(1.0, 2.0)),
    )
    told: list[str] = []
    for update in ({}, {"scale": None}):
        data = DATA.model_copy(update={"settings": settings.model_copy(update=update)})
        found: Any = workshop.do(InspectTask(model=source, **{**COMMON, "data": data}))
        told += [problem[0] for problem in found.problems]
    assert told == ["dataset.scale", "dataset.metric", "dataset.class_weights", "dataset.augment"]


def test_what_an_algorithm_prepares_is_kept_and_given_to_its_edges(
    tmp_path: Path, source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = artifacts_of(tmp_path)
    settings = {"source_steps": 4, "adapt_steps": 4, "tune_steps": 2, "max_steps": 8, "cuts": 1}
    search = {
        "data": DATA,
        "algorithm": "chamnet",
        "algorithm_config": {**settings, "samples": 5, "init_population": 2},
        "hardware": {},
    }
    root: Any = Workshop(artifacts, lambda progress: None).do(
        SourceTask(model=source, exceed={}, seed=0, prepare=("chamnet",), **search)
    )
    prepared = root.prepared["chamnet"]
    samples = Predictor.loaded(artifacts.path(prepared).read_bytes()).samples
    assert 1 < len(samples) <= 5  # those that the least share can be reached with
    known = []
    learn = Predictor.learn

    def learned(predictor: Predictor, more: list[Sample]) -> None:
        known.append(list(predictor.samples))
        learn(predictor, more)

    monkeypatch.setattr(Predictor, "learn", learned)
    adapted: Any = Workshop(artifacts, lambda progress: None).do(
        AdaptTask(
            parent=root.root,
            teacher=root.teacher,
            prepared=prepared,
            budget={"flops": 0.6 * root.root_costs["flops"]},
            accuracy_target=None,
            seed=0,
            **search,
        )
    )
    assert adapted.met
    assert known[0] == samples
