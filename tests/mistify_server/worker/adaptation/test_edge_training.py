"""Training of edges: progress, numbers of steps, and networks larger than their source."""

from dataclasses import replace
from itertools import pairwise

import keras
import numpy as np
import pytest

from executors.algorithms.morphnet.executor import MorphNetExecutor
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.contract.params import Params
from executors.data import Dataset
from executors.structure import analyse, widen
from executors.training.evaluation import evaluate
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify.config.data.metric import Metric
from mistify.config.data.targets import Target
from mistify.costs.axes import costs_of
from mistify.jobs.job import ProgressUpdate
from mistify_server.worker.adaptation.edge import run_edge
from mistify_server.worker.adaptation.progress import reporter
from mistify_server.worker.adaptation.widening import for_widened, is_widened
from tests.mistify_server.worker.adaptation.edges import Still, batch_normed, never
from tests.mistify_server.worker.adaptation.machines import no_file_costs
from tests.support.targets import overall

layers = keras.layers


def test_an_edge_reports_the_curves_of_its_training() -> None:
    """During adaptation: loss, costs with limits, and weights. During tuning: loss and accuracies."""
    model, setup = batch_normed(300)
    budget = {"flops": 36.0, "params": 80.0}
    assignment = Assignment(model, budget, (), setup, 0, analyse(model))
    params = MorphNetParams(adapt_steps=20, cuts=2, tune_steps=400, max_steps=500)
    updates: list[ProgressUpdate] = []
    report = reporter(updates.append, Metric.ACCURACY, budget)
    outcome = run_edge(
        MorphNetExecutor(params), assignment, params, (), report, measure=never, read=no_file_costs
    )
    stages = [update.stage for update in updates]
    assert stages == sorted(stages)
    assert all(update.on_curve for update in updates)
    assert [update.step for update in updates] == sorted(update.step for update in updates)
    adapting = [update for update in updates if update.stage == "adapting"]
    source = costs_of(analyse(model).network())
    assert adapting[0].relative_costs == {axis: source[axis] / limit for axis, limit in budget.items()}
    assert (adapting[0].loss, len(adapting) > 2) == (None, True)
    for update in adapting:
        assert sum(update.structure_loss_weights.values()) == pytest.approx(1)
        assert update.step == 0 or update.loss is not None
    assert max(adapting[-1].relative_costs.values()) <= 1
    tuning = [update for update in updates if update.stage == "tuning"]
    assert all(update.loss is not None and not update.structure_loss_weights for update in tuning)
    done = [update.step - adapting[-1].step for update in tuning]
    assert [step for step, update in zip(done, tuning, strict=True) if update.accuracy is not None] == [
        *(100, 200, 300, 400),
    ]
    assert tuning[-1].accuracy == outcome.scores.overall
    assert tuning[-1].loss < tuning[0].loss  # type: ignore[operator]


@pytest.mark.parametrize(
    ("planned", "targets", "while_adapting", "while_tuning"),
    [
        (0, (), (40,), {60}),  # as many steps as a round of tuning follow
        (70, (), (70,), {60}),  # the only round of tuning ends the edge
        (70, overall(1.1), (70,), {70, 100}),  # another round may follow, up to the limit
        (900, overall(1.1), (100,), {100}),
    ],
)
def test_the_total_of_an_edge_is_the_expected_number_of_steps(
    planned: int, targets: tuple[Target, ...], while_adapting: tuple[int, ...], while_tuning: set[int]
) -> None:
    model, setup = batch_normed(300)
    budget = {"flops": 36.0}
    assignment = Assignment(model, budget, (), setup, 0, analyse(model))
    params = MorphNetParams(adapt_steps=20, cuts=2, tune_steps=40, max_steps=100)
    updates: list[ProgressUpdate] = []
    outcome = run_edge(
        MorphNetExecutor(params), assignment, params, targets, updates.append,
        measure=never, read=no_file_costs, planned_steps=planned,
    )  # fmt: skip
    totals = {
        stage: [of.total_steps for of in updates if of.stage == stage] for stage in ("adapting", "tuning")
    }
    assert totals["adapting"][:1] == list(while_adapting)
    assert set(totals["tuning"]) == while_tuning
    assert all(update.step <= update.total_steps for update in updates)
    assert (updates[-1].step, updates[-1].total_steps) == (outcome.steps, outcome.steps)


def test_evaluating_the_accuracy_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for parts in (4, 1):
        monkeypatch.setattr("mistify_server.worker.adaptation.tuning._PARTS", parts)
        model, setup = batch_normed(100)
        assignment = Assignment(model, {"flops": 72.0}, (), setup, 0, analyse(model))
        params = Params(tune_steps=200, max_steps=200)
        outcomes.append(
            run_edge(
                Still(params), assignment, params, (), lambda *_: None, measure=never, read=no_file_costs
            )
        )
    for one, other in zip(*(outcome.model.get_weights() for outcome in outcomes), strict=True):
        np.testing.assert_array_equal(one, other)


def wider_than_its_source(known: bool) -> tuple[Assignment, keras.Model]:
    """Return a network twice as wide as a source too narrow for its data, with random or learnable labels."""
    source, setup = batch_normed(400)
    labels = setup.validation.targets["y"]
    if not known:
        labels = np.random.default_rng(2).integers(0, 2, len(labels))
    setup = replace(setup, validation=Dataset(setup.validation.inputs, {"y": labels}))
    wide = widen(analyse(source), 2.0)
    flops = float(analyse(wide).network().flops)
    return Assignment(wide, {"flops": flops}, (), setup, 0, analyse(source)), source


@pytest.mark.parametrize("known", [True, False])
def test_a_network_larger_than_its_source_is_trained_while_it_improves(known: bool) -> None:
    """Each round doubles the steps, and the best network is the result."""
    assignment, _ = wider_than_its_source(known)
    params = MorphNetParams(tune_steps=100, max_steps=700)
    looks: list[ProgressUpdate] = []
    report = reporter(looks.append, Metric.ACCURACY, assignment.budget)
    outcome = run_edge(
        MorphNetExecutor(params), assignment, params, (), report, measure=never, read=no_file_costs
    )
    scores = {update.step: update.accuracy for update in looks if update.step in (100, 300, 700)}
    reached = [score for score in scores.values() if score is not None]
    gains = [later > former for former, later in pairwise(reached)]
    assert outcome.steps == max(scores) == (100, 300, 700)[len(gains)]
    assert all(gains[:-1])
    assert outcome.steps == 700 or not gains[-1]
    assert outcome.scores.overall == max(reached)
    assert evaluate(outcome.model, assignment.setup.validation) == outcome.scores.overall
    if known:
        assert outcome.scores.overall > 0.9


def test_a_network_smaller_than_its_source_is_trained_for_one_round() -> None:
    model, setup = batch_normed(400)
    assignment = Assignment(model, {"flops": 36.0}, (), setup, 0, analyse(model))
    params = MorphNetParams(adapt_steps=8, cuts=2, tune_steps=10, max_steps=700)
    outcome = run_edge(
        MorphNetExecutor(params), assignment, params, (), lambda *_: None, measure=never, read=no_file_costs
    )
    assert outcome.steps < 20


def test_images_are_augmented_for_larger_networks_as_the_source_allows() -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="x")
    pooled = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, padding="same")(inputs))
    source = keras.Model(inputs, layers.Dense(2, name="y")(pooled))
    images = np.random.default_rng(0).normal(size=(200, 8, 8, 1)).astype(np.float32)
    data = Dataset({"x": images}, {"y": np.arange(200) % 2})
    right = Dataset({"x": images}, {"y": source.predict(images, verbose=0).argmax(axis=1)})
    teacher = {"y": np.zeros((200, 2), np.float32)}
    setup = TrainingSetup(data, right, teacher, TrainingParams())
    wide = widen(analyse(source), 2.0)
    budget = {"flops": float(analyse(wide).network().flops)}
    assignment = Assignment(wide, budget, (), setup, 0, analyse(source))
    assert is_widened(assignment)
    grown = for_widened(assignment, source).setup
    assert grown.settings.augment is not None
    assert (grown.teacher, grown.teacher_model) == (None, source)
    left_alone = replace(setup, settings=DataSettings(augment=Augmentation()))
    assert for_widened(replace(assignment, setup=left_alone), source).setup is left_alone
    for asked, used in (Augmentation(brightness=0.1),) * 2, (Augmentation(flip=True), grown.settings.augment):
        so_far = replace(setup, settings=DataSettings(augment=asked))
        assert for_widened(replace(assignment, setup=so_far), source).setup.settings.augment == used
    assert not is_widened(replace(assignment, model=source))
    assert not is_widened(replace(assignment, budget={"flops": 10.0}))
