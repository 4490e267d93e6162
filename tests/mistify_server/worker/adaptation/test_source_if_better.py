"""The result of an edge: its own network, or the unchanged source if that is better and meets the goal."""

import keras
import pytest

from executors.contract.assignment import Assignment
from executors.structure import analyse
from executors.training.setup import TrainingSetup
from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Scores, Target
from mistify.costs.budget import latency_axis, memory_axis
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import Quantization
from mistify_server.worker.adaptation.edge import EdgeOutcome
from mistify_server.worker.adaptation.source_outcome import source_if_better
from tests.mistify_server.worker.adaptation.edges import never, two_output_model
from tests.mistify_server.worker.adaptation.machines import no_file_costs
from tests.support.targets import overall


def result_of(
    source: keras.Model, training_setup: TrainingSetup, own: EdgeOutcome, flops: float
) -> EdgeOutcome:
    assignment = Assignment(source, {"flops": flops}, (), training_setup, 0, analyse(source))
    return source_if_better(own, source, assignment, overall(0.8), measure=never, read=no_file_costs)


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
