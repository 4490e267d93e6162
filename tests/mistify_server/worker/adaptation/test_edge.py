"""The result of an edge: its own network, or the unchanged source if that is better and meets the goal."""

import re
from dataclasses import replace
from itertools import pairwise

import keras
import numpy as np
import pytest

from executors.algorithms.morphnet.executor import MorphNetExecutor
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.data import Dataset
from executors.structure import analyse, copied, widen
from executors.training.evaluation import evaluate
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Scores, Target
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs, latency_axis, memory_axis
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import Quantization
from mistify.jobs.job import ProgressUpdate
from mistify_server.worker.adaptation.edge import EdgeOutcome, run_edge, source_if_better
from mistify_server.worker.adaptation.progress import reporter
from mistify_server.worker.adaptation.widening import for_widened, is_widened
from tests.mistify_server.worker.adaptation.machines import no_file_costs
from tests.support.targets import overall

layers = keras.layers


@pytest.fixture(scope="module")
def source() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((16,), name="x")
    return keras.Model(inputs, layers.Dense(4, "softmax", name="scores")(inputs))


@pytest.fixture(scope="module")
def training_setup(source: keras.Model) -> TrainingSetup:
    """Return test and training data on which the source is 75% and 100% accurate, respectively."""
    train, test = (np.random.default_rng(seed).normal(size=(40, 16)).astype(np.float32) for seed in (1, 0))
    known, right = (source.predict(rows, verbose=0).argmax(axis=1) for rows in (train, test))
    wrong = np.arange(40) % 4 == 0
    return TrainingSetup(
        Dataset({"x": train}, {"scores": known}),
        Dataset({"x": test}, {"scores": (right + wrong) % 4}),
        None,
        TrainingParams(batch_size=8, learning_rate=1e-3, distillation=0.0),
    )


def result_of(
    source: keras.Model, training_setup: TrainingSetup, own: EdgeOutcome, flops: float
) -> EdgeOutcome:
    assignment = Assignment(source, {"flops": flops}, (), training_setup, 0, analyse(source))
    return source_if_better(own, source, assignment, overall(0.8), measure=never, read=no_file_costs)


def never(model: keras.Model) -> float:
    raise AssertionError("nothing is to be measured")


def test_a_better_source_is_the_result(source: keras.Model, training_setup: TrainingSetup) -> None:
    own = EdgeOutcome(keras.models.clone_model(source), {"flops": 60.0}, Scores(0.7), 5, True, "")
    outcome = result_of(source, training_setup, own, 64.0)
    assert outcome.model is source
    assert (outcome.scores.overall, outcome.costs["flops"], outcome.steps) == (0.75, 64, 5)
    assert (outcome.met, outcome.reason) == (
        False,
        "accuracy 0.7500 below 0.8000 on the validation data after 5 steps",
    )


@pytest.mark.parametrize(("flops", "reached"), [(64.0, 0.75), (63.0, 0.7)])
def test_a_source_that_is_not_better_or_too_large_is_not_the_result(
    source: keras.Model, training_setup: TrainingSetup, flops: float, reached: float
) -> None:
    own = EdgeOutcome(keras.models.clone_model(source), {"flops": 60.0}, Scores(reached), 5, True, "")
    assert result_of(source, training_setup, own, flops) is own


@pytest.mark.parametrize(("cost", "taken"), [(65.0, True), (64.0, True), (63.0, False)])
def test_the_cheaper_of_equally_accurate_networks_is_the_result(
    source: keras.Model, training_setup: TrainingSetup, cost: float, taken: bool
) -> None:
    own = EdgeOutcome(keras.models.clone_model(source), {"flops": cost}, Scores(0.75), 5, True, "")
    assert (result_of(source, training_setup, own, 70.0).model is source) is taken


@pytest.mark.parametrize(
    ("cost", "reached", "taken"), [(65.0, 0.753, True), (65.0, 0.754, False), (64.0, 0.753, False)]
)
def test_a_more_expensive_network_has_to_be_better_by_more_than_seed_noise(
    source: keras.Model, training_setup: TrainingSetup, cost: float, reached: float, taken: bool
) -> None:
    """The source costs 64 and reaches 0.75."""
    own = EdgeOutcome(keras.models.clone_model(source), {"flops": cost}, Scores(reached), 5, True, "")
    assert (result_of(source, training_setup, own, 70.0).model is source) is taken


@pytest.mark.parametrize(("measured", "taken"), [(0.9, True), (0.97, False), (1.6, False)])
def test_a_source_meets_a_latency_limit_if_measured_with_a_margin(
    source: keras.Model, training_setup: TrainingSetup, measured: float, taken: bool
) -> None:
    profile = NominalProfile(HOST.name, 1e-3, 1e-3)
    predicted = profile.latency_ms(analyse(source).network())
    budget = {latency_axis(HOST.name): predicted}
    own = EdgeOutcome(
        keras.models.clone_model(source), {latency_axis(HOST.name): 0.0}, Scores(0.7), 5, True, ""
    )
    assignment = Assignment(source, budget, (profile,), training_setup, 0, analyse(source))
    outcome = source_if_better(
        own, source, assignment, (), measure=lambda model: measured * predicted, read=no_file_costs
    )
    assert (outcome.model is source) == taken
    if taken:
        assert outcome.costs[latency_axis(HOST.name)] == pytest.approx(measured * predicted)


class Still(AdaptationExecutor):
    """An executor that meets every budget with the unchanged network."""

    name = "still"
    trainer: Trainer = None  # type: ignore[assignment]

    def __init__(self, params: Params) -> None: ...

    def init(self, assignment: Assignment) -> None:
        self.trainer = Trainer(copied(assignment.model), assignment.setup, assignment.seed)

    def adjust(self, weights: object) -> None: ...

    def iterate(self) -> int:
        raise AssertionError("the budget is met")

    def measure(self) -> dict[str, float]:
        return {"flops": 1.0}

    def network(self) -> keras.Model:
        return self.trainer.model


class Idle(Still):
    """An executor that neither trains nor cuts."""

    name = "idle"

    def iterate(self) -> int:
        return 0


def test_an_edge_ends_even_if_the_algorithm_neither_trains_nor_cuts(
    source: keras.Model, training_setup: TrainingSetup
) -> None:
    assignment = Assignment(source, {"flops": 0.5}, (), training_setup, 0, analyse(source))
    params = Params(tune_steps=0)
    outcome = run_edge(
        Idle(params), assignment, params, (), lambda *_: None, measure=never, read=no_file_costs
    )
    assert (outcome.met, outcome.steps) == (False, 0)
    assert outcome.reason == "multiply-adds 1 over 0.5; the algorithm no longer trains or cuts"


@pytest.mark.parametrize("surplus", [1.0, 1.6, 0.6])
def test_a_network_is_cut_until_its_file_meets_the_limit(
    training_setup: TrainingSetup, surplus: float
) -> None:
    """Whatever the ratio of the file's cost to the prediction from layers."""
    inputs = keras.Input((16,), name="x")
    hidden = layers.Dense(64, "relu")(inputs)
    source = keras.Model(inputs, layers.Dense(4, "softmax", name="scores")(hidden))
    axis = memory_axis(Quantization.NONE)

    def read(model: keras.Model) -> Costs:
        return {axis: surplus * analyse(model).network().memory_bytes()}

    limit = 0.5 * analyse(source).network().memory_bytes()
    assignment = Assignment(source, {axis: limit}, (), training_setup, 0, analyse(source))
    params = MorphNetParams(adapt_steps=4, tune_steps=1, max_steps=100)
    outcome = run_edge(
        MorphNetExecutor(params), assignment, params, (), lambda *_: None, measure=never, read=read
    )
    assert outcome.met, outcome.reason
    assert outcome.costs == {**outcome.costs, **read(outcome.model)}
    assert 0.5 * limit <= outcome.costs[axis] <= limit


def test_a_limit_is_judged_by_the_file_even_if_the_prediction_exceeds_it(
    source: keras.Model, training_setup: TrainingSetup
) -> None:
    """The network cannot be cut any further."""
    axis = memory_axis(Quantization.NONE)
    assignment = Assignment(source, {axis: 100.0}, (), training_setup, 0, analyse(source))
    params = MorphNetParams(adapt_steps=4, tune_steps=1, max_steps=100)
    for stored, met in ((99.0, True), (101.0, False)):
        outcome = run_edge(
            MorphNetExecutor(params), assignment, params, (), lambda *_: None,
            measure=never, read=lambda _, stored=stored: {axis: stored},
        )  # fmt: skip
        assert (outcome.met, outcome.costs[axis]) == (met, stored), outcome.reason


def test_a_source_with_too_large_a_file_is_not_the_result(
    source: keras.Model, training_setup: TrainingSetup
) -> None:
    axis = memory_axis(Quantization.NONE)
    budget = {axis: analyse(source).network().memory_bytes()}
    own = EdgeOutcome(keras.models.clone_model(source), {axis: 1.0}, Scores(0.7), 5, True, "")
    assignment = Assignment(source, budget, (), training_setup, 0, analyse(source))
    for factor in (1.0, 1.1):
        stored = {axis: factor * budget[axis]}
        outcome = source_if_better(
            own, source, assignment, overall(0.8), measure=never, read=lambda _, stored=stored: stored
        )
        assert (outcome.model is source) is (factor == 1.0)


def test_batch_norm_statistics_of_the_result_come_from_the_training_data() -> None:
    """With its old statistics, the network assigns all examples to the first class."""
    inputs = keras.Input((1,), name="x")
    norm = layers.BatchNormalization(name="norm")
    model = keras.Model(inputs, layers.Dense(2, name="y")(norm(inputs)))
    model.get_layer("y").set_weights([np.array([[-1.0, 1.0]]), np.zeros(2)])
    norm.set_weights([np.ones(1), np.zeros(1), np.full(1, 100.0), np.ones(1)])
    train, test = (np.random.default_rng(seed).normal(5, 2, (60, 1)).astype(np.float32) for seed in (0, 1))
    data = [
        Dataset({"x": rows}, {"y": (rows[:, 0] > train.mean()).astype(np.int64)}) for rows in (train, test)
    ]
    setup = TrainingSetup(*data, None, TrainingParams())
    assignment = Assignment(model, {"flops": 2.0}, (), setup, 0, analyse(model))
    outcome = run_edge(
        Still(Params()),
        assignment,
        Params(tune_steps=0),
        (),
        lambda *_: None,
        measure=never,
        read=no_file_costs,
    )
    assert outcome.scores.overall == evaluate(outcome.model, data[1]) == 1.0
    np.testing.assert_allclose(outcome.model.get_layer("norm").moving_mean, [train.mean()], rtol=1e-5)
    assert evaluate(model, data[1]) < 0.7


def two_output_model(rows: int) -> tuple[keras.Model, TrainingSetup]:
    """Return a network that predicts a kind correctly and a price 1 too high, and data for both."""
    inputs = keras.Input((2,), name="x")
    outputs = [layers.Dense(2, name="kind")(inputs), layers.Dense(1, name="price")(inputs)]
    model = keras.Model(inputs, outputs)
    model.get_layer("kind").set_weights([np.array([[-9.0, 9.0], [0.0, 0.0]]), np.zeros(2)])
    model.get_layer("price").set_weights([np.array([[0.0], [1.0]]), np.ones(1)])

    def data(seed: int) -> Dataset:
        x = np.random.default_rng(seed).normal(size=(rows, 2)).astype(np.float32)
        return Dataset({"x": x}, {"kind": (x[:, 0] > 0).astype(np.int64), "price": x[:, 1:]})

    settings = DataSettings(metric=Metric.MEAN_SCORE, metrics={"kind": Metric.ACCURACY, "price": Metric.MAE})
    params = TrainingParams(batch_size=20, learning_rate=0.002, distillation=0.0)
    return model, TrainingSetup(data(0), data(1), None, params, settings)


@pytest.mark.parametrize(("price", "enough"), [(0.5, True), (1e-9, False)])
def test_a_network_is_tuned_until_every_output_reaches_its_target(price: float, enough: bool) -> None:
    """The first target is reached immediately, the second one after training or not within the limit."""
    model, setup = two_output_model(200)
    assignment = Assignment(model, {"flops": 9.0}, (), setup, 0, analyse(model))
    targets = Target("kind", Metric.ACCURACY, 0.9), Target("price", Metric.MAE, price)
    outcome = run_edge(
        Still(Params()), assignment, Params(tune_steps=20, max_steps=400), targets, lambda *_: None,
        measure=never, read=no_file_costs,
    )  # fmt: skip
    reached = outcome.scores.of("price", Metric.MAE)
    assert reached is not None
    assert outcome.met is (reached <= price) is enough
    assert (20 < outcome.steps < 400) is enough
    if not enough:
        assert re.match(r"price: mae 0\.\d+ above 0.0000 on the validation data after 400", outcome.reason)


@pytest.mark.parametrize(("price", "source_taken"), [(1.5, True), (0.5, False)])
def test_the_result_is_the_network_that_reaches_all_targets(price: float, source_taken: bool) -> None:
    """The source's price is 1 off; its mean score is higher only if that of the network is lower."""
    source, setup = two_output_model(50)
    assignment = Assignment(source, {"flops": 9.0}, (), setup, 0, analyse(source))
    for overall_score, other_price in ((0.99, 2.0), (0.01, 0.4)):
        own_scores = Scores(overall_score, (OutputScore("price", Metric.MAE, other_price),))
        own = EdgeOutcome(keras.models.clone_model(source), {"flops": 6.0}, own_scores, 5, True, "")
        targets = (Target("price", Metric.MAE, price),)
        outcome = source_if_better(own, source, assignment, targets, measure=never, read=no_file_costs)
        assert (outcome is not own) is (source_taken if other_price > 1 else price > 1)


@pytest.mark.parametrize("faster", [0.6, 1.0])
def test_a_cut_network_uses_its_limit(training_setup: TrainingSetup, faster: float) -> None:
    """Whatever the ratio of measured to predicted latency of narrower networks on this machine."""
    inputs = keras.Input((16,), name="x")
    hidden = layers.Dense(64, "relu")(inputs)
    source = keras.Model(inputs, layers.Dense(4, "softmax", name="scores")(hidden))
    profile = NominalProfile(HOST.name, 1e-3, 1e-3)

    def measure(model: keras.Model) -> float:
        predicted = profile.latency_ms(analyse(model).network())
        return predicted * (1.0 if analyse(model).widths == analyse(source).widths else faster)

    limit = 0.5 * measure(source)
    assignment = Assignment(
        source, {latency_axis(HOST.name): limit}, (profile,), training_setup, 0, analyse(source)
    )
    params = MorphNetParams(adapt_steps=4, tune_steps=1, max_steps=100)
    outcome = run_edge(
        MorphNetExecutor(params), assignment, params, (), lambda *_: None, measure=measure, read=no_file_costs
    )
    assert 0.85 * limit <= measure(outcome.model) <= limit


def batch_normed(rows: int) -> tuple[keras.Model, TrainingSetup]:
    """Return a network with a group to cut, and data that it learns in a few hundred steps."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="x")
    hidden = layers.ReLU()(layers.BatchNormalization()(layers.Dense(12)(inputs)))
    model = keras.Model(inputs, layers.Dense(2, name="y")(hidden))

    def data(seed: int) -> Dataset:
        x = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
        return Dataset({"x": x}, {"y": (x[:, 0] * x[:, 1] > 0).astype(np.int64)})

    params = TrainingParams(batch_size=32, learning_rate=0.01, distillation=0.0)
    return model, TrainingSetup(data(0), data(1), None, params)


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
