"""A source that meets a goal, and has nothing left to learn, is the result of the edge as it is."""

from dataclasses import replace

import keras
import pytest

from executors.contract.assignment import Assignment
from executors.contract.params import Params
from executors.structure import analyse, widen
from executors.training.setup import TrainingSetup
from mistify.config.data.targets import Target
from mistify.config.task import TaskConfig
from mistify.costs.budget import Budget, latency_axis, memory_axis
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import Quantization
from mistify.jobs.job import ProgressUpdate
from mistify_server.worker.adaptation.converted_costs import CostReader
from mistify_server.worker.adaptation.edge import EdgeOutcome
from mistify_server.worker.adaptation.latency import LatencyMeter
from mistify_server.worker.adaptation.progress import EdgeProgress
from mistify_server.worker.adaptation.source_outcome import source_if_enough
from tests.mistify_server.worker.adaptation.edges import never
from tests.mistify_server.worker.adaptation.machines import no_file_costs
from tests.support.targets import overall

#: The source costs 64 multiply-adds and reaches 0.75.
PARAMS = Params(source_steps=40, tune_steps=40)


def outcome_of(
    assignment: Assignment,
    source: keras.Model,
    params: Params = PARAMS,
    targets: tuple[Target, ...] = (),
    *,
    measure: LatencyMeter = never,
    read: CostReader = no_file_costs,
) -> tuple[EdgeOutcome | None, list[ProgressUpdate]]:
    """Return the outcome and the reported progress."""
    reported: list[ProgressUpdate] = []
    progress = EdgeProgress(reported.append, 0, params)
    outcome = source_if_enough(source, assignment, params, targets, progress, measure=measure, read=read)
    return outcome, reported


def assigned(
    source: keras.Model, setup: TrainingSetup, budget: Budget, model: keras.Model | None = None
) -> Assignment:
    return Assignment(model or source, budget, (), setup, 0, analyse(source))


def test_a_source_that_is_enough_is_the_result(source: keras.Model, training_setup: TrainingSetup) -> None:
    outcome, (update,) = outcome_of(assigned(source, training_setup, {"flops": 64.0}), source)
    assert outcome is not None
    assert outcome.model is source
    assert (outcome.scores.overall, outcome.costs["flops"]) == (0.75, 64)
    assert (outcome.steps, outcome.spared, outcome.met, outcome.reason) == (0, 40, True, "")
    assert (update.accuracy, update.costs["flops"], update.total_steps) == (0.75, 64, 0)


@pytest.mark.parametrize(
    ("flops", "params", "targets", "task"),
    [
        (63.0, PARAMS, (), None),
        (64.0, Params(source_steps=39, tune_steps=40), (), None),
        (64.0, Params(source_steps=40, tune_steps=0), (), None),
        (64.0, PARAMS, overall(0.75), None),  # not with enough confidence
        (64.0, PARAMS, (), TaskConfig(classes=("a", "b"))),
    ],
)
def test_other_sources_are_adapted(
    source: keras.Model,
    training_setup: TrainingSetup,
    *,
    flops: float,
    params: Params,
    targets: tuple[Target, ...],
    task: TaskConfig | None,
) -> None:
    assignment = replace(assigned(source, training_setup, {"flops": flops}), task=task)
    assert outcome_of(assignment, source, params, targets) == (None, [])


def test_a_widened_network_is_tuned(training_setup: TrainingSetup) -> None:
    inputs = keras.Input((16,), name="x")
    hidden = keras.layers.Dense(5, activation="relu", name="hidden")(inputs)
    small = keras.Model(inputs, keras.layers.Dense(4, "softmax", name="scores")(hidden))
    budget = {"flops": float(analyse(small).network().flops)}
    wider = widen(analyse(small), 2.0, 0)
    assert outcome_of(assigned(small, training_setup, budget), small)[0] is not None
    assert outcome_of(assigned(small, training_setup, budget, wider), small) == (None, [])


@pytest.mark.parametrize(("measured", "enough"), [(0.9, True), (0.97, False), (1.6, False), (None, False)])
def test_latencies_are_measured_with_a_margin(
    source: keras.Model, training_setup: TrainingSetup, measured: float | None, enough: bool
) -> None:
    profile, axis, memory = (
        NominalProfile(HOST.name, 1e-3, 1e-3),
        latency_axis(HOST.name),
        memory_axis(Quantization.NONE),
    )
    predicted = profile.latency_ms(analyse(source).network())
    assignment = replace(
        assigned(source, training_setup, {axis: predicted, memory: 1e9}), profiles=(profile,)
    )
    outcome, _ = outcome_of(
        assignment,
        source,
        measure=lambda _: None if measured is None else measured * predicted,
        read=lambda _: {memory: 12_345.0},
    )
    assert (outcome is not None) is enough
    if outcome is not None and measured is not None:
        assert outcome.costs[axis] == pytest.approx(measured * predicted)
        assert outcome.costs[memory] == 12_345


@pytest.mark.parametrize(("factor", "enough"), [(1.0, True), (1.1, False)])
def test_the_file_has_to_meet_the_limits(
    source: keras.Model, training_setup: TrainingSetup, factor: float, enough: bool
) -> None:
    axis = memory_axis(Quantization.NONE)
    budget = {axis: analyse(source).network().memory_bytes()}
    outcome, _ = outcome_of(
        assigned(source, training_setup, budget), source, read=lambda _: {axis: factor * budget[axis]}
    )
    assert (outcome is not None) is enough
