"""Contract tests for every registered algorithm."""

from dataclasses import dataclass, replace
from math import log2

import keras
import numpy as np
import pytest

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor, StuckError
from executors.contract.preparation import PreparationProgress
from executors.contract.registry import algorithms, executor_class, profile_of
from executors.structure import analyse, removable_blocks, remove_blocks
from executors.training.trainer import Trainer, constant
from mistify.config.layers import LayerRule
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, PARAMS, latency_axis, meets
from tests.executors.contract.algorithms import (
    ADAPTING,
    ALGORITHMS,
    BOARD,
    MOSTLY_SLOW,
    assert_equal,
    assignment,
    costs,
    quick_params,
    wide_network,
)

layers = keras.layers

#: The minimum share of a limit that has to be used: a subnet may stay below it by a whole block.
LEAST_USED = {"adaptivenet": 0.5, "crowdhmt": 0.4}


def adapted(algorithm, inputs):
    """Return a new executor that has iterated until it met the budget."""
    return sent(executor_class(algorithm)(quick_params(algorithm)), inputs)


def sent(executor, inputs, limit=40):
    """Give the executor an assignment, and iterate until it meets the budget."""
    executor.init(inputs)
    for _ in range(limit):
        if meets(executor.measure(), inputs.budget):
            return executor
        executor.adjust({axis: 1 / len(inputs.budget) for axis in inputs.budget})
        assert executor.iterate() >= 0
    raise AssertionError(f"{executor.name} did not meet {inputs.budget} in {limit} iterations")


@dataclass(frozen=True)
class Adapted:
    """An executor that has met a budget of multiply-adds, with its state at that point."""

    algorithm: str
    inputs: Assignment
    executor: AdaptationExecutor
    trainer: Trainer
    network: keras.Model
    weights: list[np.ndarray]
    source_weights: list[np.ndarray]


def adapted_to_flops(algorithm, trained, training_setup):
    before = [weight.copy() for weight in trained.get_weights()]
    inputs = assignment(trained, training_setup, {FLOPS: 0.6 * costs(trained)[FLOPS]})
    executor = adapted(algorithm, inputs)
    network = executor.network()
    return Adapted(algorithm, inputs, executor, executor.trainer, network, network.get_weights(), before)


@pytest.fixture(scope="module", params=ADAPTING)
def once(request, trained, training_setup):
    """Return a result shared by all tests that only read it."""
    return adapted_to_flops(request.param, trained, training_setup)


@pytest.fixture(scope="module")
def again(once, trained, training_setup):
    """Adapt to the same assignment again; one test continues with this executor."""
    return adapted_to_flops(once.algorithm, trained, training_setup)


def test_a_budget_is_met_closely_without_changing_the_parent(once, trained):
    assert meets(costs(once.network), once.inputs.budget)
    assert costs(once.network) == pytest.approx(once.executor.measure())
    least = LEAST_USED.get(once.algorithm, 0.85) * once.inputs.budget[FLOPS]
    assert costs(once.network)[FLOPS] > least
    assert_equal(trained.get_weights(), once.source_weights)


@pytest.mark.parametrize("algorithm", MOSTLY_SLOW)
@pytest.mark.parametrize(
    "shares",
    [{PARAMS: 0.4}, pytest.param({latency_axis("board"): 0.6, PARAMS: 0.7}, marks=pytest.mark.slow)],
)
def test_a_budget_on_any_axis_is_met_without_changing_the_parent(algorithm, shares, trained, training_setup):
    before = [weight.copy() for weight in trained.get_weights()]
    budget = {axis: share * costs(trained)[axis] for axis, share in shares.items()}
    executor = adapted(algorithm, assignment(trained, training_setup, budget))
    network = executor.network()
    assert meets(costs(network), budget)
    assert costs(network) == pytest.approx(executor.measure())
    assert_equal(trained.get_weights(), before)


def test_measuring_changes_nothing(once):
    first, network = once.executor.measure(), once.executor.network()
    assert once.executor.measure() == first
    assert_equal(once.executor.network().get_weights(), network.get_weights())
    assert_equal(network.get_weights(), once.weights)


def test_the_same_assignment_gives_the_same_network(once, again):
    assert_equal(again.weights, once.weights)
    another_seed = adapted(once.algorithm, replace(once.inputs, seed=4)).network().get_weights()
    assert any(
        left.shape != right.shape or not np.array_equal(left, right)
        for left, right in zip(once.weights, another_seed, strict=True)
    )


@pytest.mark.parametrize("algorithm", MOSTLY_SLOW)
def test_an_executor_continues_along_a_path(algorithm, trained, training_setup):
    """It continues with its state and compiled functions, and does not change delivered networks."""
    whole = costs(trained)[FLOPS]
    inputs = assignment(trained, training_setup, {FLOPS: whole})
    executor = adapted(algorithm, inputs)
    for share in (0.6, 0.45):
        executor.trainer.train(constant(1))
        reached, trainer, delivered = executor.measure(), executor.trainer, executor.network()
        traces, before = trainer._run.experimental_get_tracing_count(), delivered.get_weights()
        onward = replace(inputs, model=delivered, budget={FLOPS: share * whole})

        executor.init(onward)
        assert executor.measure() == reached
        assert executor.trainer is trainer
        trainer.train(constant(1))
        assert trainer._run.experimental_get_tracing_count() == traces

        sent(executor, onward)
        least = LEAST_USED.get(algorithm, 0.85) * share * whole
        assert least < costs(executor.network())[FLOPS] <= share * whole
        assert_equal(delivered.get_weights(), before)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_preparation_takes_the_predicted_steps_and_resumes_without_repeating_any(
    algorithm, trained, training_setup
):
    """Resumed with all of its parts, a preparation is identical, and no step is repeated."""
    executor_type, params = executor_class(algorithm), quick_params(algorithm)
    source = wide_network() if algorithms()[algorithm].serves_tasks else trained
    inputs = assignment(source, training_setup, {FLOPS: 0.6 * costs(source)[FLOPS]})
    reported = []

    class Progress(PreparationProgress):
        def report(self, step, total, loss=None):
            super().report(step, total, loss)
            reported.append((step, total))

    progress = Progress()
    content = executor_type(params).prepare(inputs, progress)
    profile = profile_of(algorithm, params, inputs.source)
    assert profile.prepares == bool(content) == bool(reported)
    assert [step for step, _ in reported] == sorted({step for step, _ in reported})
    assert all(step <= total for step, total in reported)
    assert profile.preparation_steps(log2(1 / 0.6)) == progress.step
    reported.clear()
    assert executor_type(params).prepare(inputs, progress) == content
    assert reported == []


def test_an_executor_restarts_with_another_network(again):
    """Even if it is a copy of the network that it last delivered."""
    again.executor.init(replace(again.inputs, model=keras.models.clone_model(again.network)))
    assert again.executor.trainer is not again.trainer
    assert_equal(sent(again.executor, again.inputs).network().get_weights(), again.weights)


@pytest.mark.parametrize("algorithm", MOSTLY_SLOW)
def test_an_impossible_budget_is_reported(algorithm, trained, training_setup):
    with pytest.raises(StuckError, match="multiply-adds"):
        adapted(algorithm, assignment(trained, training_setup, {FLOPS: 10.0}))


def least_under(rules, model):
    """Return the minimum cost of a network under its rules."""
    structure = analyse(model, rules)
    least = remove_blocks(structure, removable_blocks(structure))
    return costs_of(least.network(least.least_widths), [BOARD])


def weights_for(layer, model):
    """Return the number of weights of a layer, or of the layers of another kind in its place."""
    return sum(one.count_params() for one in model.layers if layer in one.name.split("-"))


@pytest.mark.parametrize("algorithm", MOSTLY_SLOW)
@pytest.mark.parametrize("axis", [FLOPS, pytest.param(latency_axis("board"), marks=pytest.mark.slow)])
def test_rules_for_layers_are_obeyed(algorithm, axis, trained, training_setup):
    """At nearly the smallest network that the rules allow; an error says where no more can be cut."""
    stem, inner, _, last = (layer.name for layer in trained.layers if isinstance(layer, layers.Conv2D))
    add = next(layer.name for layer in trained.layers if isinstance(layer, layers.Add))
    rules = {inner: LayerRule(7), last: LayerRule(9)}
    least = least_under(rules, trained)
    inputs = assignment(trained, training_setup, {axis: 1.03 * least[axis]}, rules=rules)
    network = adapted(algorithm, inputs).network()
    assert network.get_layer(inner).filters in (7, 8)
    assert network.get_layer(last).filters in (9, 10)
    assert add in [layer.name for layer in network.layers]

    kept = {stem: LayerRule(), inner: LayerRule()}
    least = least_under(kept, trained)
    inputs = assignment(trained, training_setup, {axis: 1.03 * least[axis]}, rules=kept)
    network = adapted(algorithm, inputs).network()
    assert [tuple(network.get_layer(name).kernel.shape) for name in kept] == [(3, 3, 1, 8), (3, 3, 8, 12)]
    assert weights_for(last, network) < weights_for(last, trained)
    assert network.get_layer(inner).output.shape[1:] == (8, 8, 12)
    with pytest.raises(StuckError, match="at its minimum"):
        adapted(algorithm, replace(inputs, budget={axis: 0.9 * least[axis]}))
