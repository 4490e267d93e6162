"""What an edge hands on: its own network, or a source that is better and meets the goal as it is."""

import keras
import numpy as np
import pytest

from executors.base import Assignment
from executors.data import Dataset
from executors.structure import analyse
from executors.training.setup import TrainingParams, TrainingSetup
from mistify.costs.budget import latency_axis
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile
from mistify_server.worker.adaptation.edge import EdgeOutcome, source_if_better

layers = keras.layers


@pytest.fixture(scope="module")
def source() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((16,), name="x")
    return keras.Model(inputs, layers.Dense(4, "softmax", name="scores")(inputs))


@pytest.fixture(scope="module")
def training_setup(source: keras.Model) -> TrainingSetup:
    """Test data of which the source tells three in four right, and training data of which it tells all."""
    train, test = (np.random.default_rng(seed).normal(size=(40, 16)).astype(np.float32) for seed in (1, 0))
    known, right = (source.predict(rows, verbose=0).argmax(axis=1) for rows in (train, test))
    wrong = np.arange(40) % 4 == 0
    return TrainingSetup(
        Dataset({"x": train}, {"scores": known}),
        Dataset({"x": test}, {"scores": (right + wrong) % 4}),
        None,
        TrainingParams(batch_size=8, learning_rate=1e-3, distillation=0.0),
    )


def handed_on(
    source: keras.Model, training_setup: TrainingSetup, own: EdgeOutcome, flops: float
) -> EdgeOutcome:
    assignment = Assignment(source, {"flops": flops}, (), training_setup, 0, analyse(source))
    return source_if_better(own, source, assignment, 0.8, measure=never)


def never(model: keras.Model) -> float:
    raise AssertionError("nothing is to be measured")


def test_a_better_source_is_handed_on(source: keras.Model, training_setup: TrainingSetup) -> None:
    own = EdgeOutcome(keras.models.clone_model(source), {"flops": 60.0}, 0.7, 5, True, "")
    found = handed_on(source, training_setup, own, 64.0)
    assert found.model is source
    assert (found.accuracy, found.costs["flops"], found.steps) == (0.75, 64, 5)
    assert (found.met, found.reason) == (False, "accuracy 0.7500 below 0.8000 after 5 steps")


@pytest.mark.parametrize(("flops", "reached"), [(64.0, 0.75), (63.0, 0.7)])
def test_a_source_that_is_no_better_or_too_large_is_not(
    source: keras.Model, training_setup: TrainingSetup, flops: float, reached: float
) -> None:
    own = EdgeOutcome(keras.models.clone_model(source), {"flops": 60.0}, reached, 5, True, "")
    assert handed_on(source, training_setup, own, flops) is own


@pytest.mark.parametrize(("measured", "taken"), [(0.9, True), (0.97, False), (1.6, False)])
def test_a_source_meets_a_limit_on_latency_as_it_is_measured_with_room(
    source: keras.Model, training_setup: TrainingSetup, measured: float, taken: bool
) -> None:
    profile = NominalProfile(HOST.name, 1e-3, 1e-3)
    predicted = profile.latency_ms(analyse(source).network())
    budget = {latency_axis(HOST.name): predicted}
    own = EdgeOutcome(keras.models.clone_model(source), {latency_axis(HOST.name): 0.0}, 0.7, 5, True, "")
    assignment = Assignment(source, budget, (profile,), training_setup, 0, analyse(source))
    found = source_if_better(own, source, assignment, None, measure=lambda model: measured * predicted)
    assert (found.model is source) == taken
    if taken:
        assert found.costs[latency_axis(HOST.name)] == pytest.approx(measured * predicted)
