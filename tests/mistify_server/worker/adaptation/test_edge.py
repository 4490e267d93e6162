"""Edges are cut and tuned until limits and targets are met."""

import re

import keras
import numpy as np
import pytest

from executors.algorithms.morphnet.executor import MorphNetExecutor
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.contract.params import Params
from executors.data import Dataset
from executors.structure import analyse
from executors.training.evaluation import evaluate
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.data.metric import Metric
from mistify.config.data.targets import Target
from mistify.costs.budget import Costs, latency_axis, memory_axis
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import Quantization
from mistify_server.worker.adaptation.edge import run_edge
from tests.mistify_server.worker.adaptation.edges import Still, never, two_output_model
from tests.mistify_server.worker.adaptation.machines import no_file_costs

layers = keras.layers


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
