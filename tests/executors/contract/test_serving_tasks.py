"""Contract tests for every registered algorithm that makes networks for single tasks of a source."""

from dataclasses import replace

import pytest

from executors.contract.executor import StuckError
from executors.contract.preparation import PreparationProgress
from executors.contract.registry import executor_class
from mistify.config.task import TaskConfig
from mistify.costs.budget import FLOPS, meets
from tests.executors.contract.algorithms import (
    SERVING,
    assert_equal,
    assignment,
    costs,
    quick_params,
    wide_network,
)


@pytest.fixture(scope="module", params=SERVING)
def served(request, training_setup):
    """Return a new executor of an algorithm that serves tasks, and an assignment with its preparation."""
    executor = executor_class(request.param)(quick_params(request.param))
    inputs = assignment(wide_network(), training_setup, {})
    return executor, replace(inputs, prepared=executor.prepare(inputs, PreparationProgress()))


def for_task(inputs, *classes, **changes):
    """Return an assignment for some classes, with their data."""
    setup = inputs.setup
    own = replace(
        setup,
        train=setup.train.of_classes(classes),
        validation=setup.validation.of_classes(classes),
        teacher=None,
    )
    return replace(inputs, task=TaskConfig(classes=classes), setup=own, **changes)


def test_every_task_has_a_network_of_its_own(served):
    executor, inputs = served
    before, networks = [weight.copy() for weight in inputs.model.get_weights()], []
    for classes in (("1", "7"), ("2", "3", "5"), ("1", "7")):
        own = for_task(inputs, *classes)
        seen = executor.preview(own)
        executor.init(own)
        networks.append(executor.network())
        assert networks[-1].output.shape == (None, len(classes))
        assert costs(networks[-1]) == pytest.approx(executor.measure())
        assert costs(networks[-1]) == pytest.approx(costs(seen))
    first, _, again = networks
    assert_equal(again.get_weights(), first.get_weights())
    assert_equal(inputs.model.get_weights(), before)


def test_a_network_for_a_task_is_within_its_budget_or_the_budget_is_reported(served):
    executor, inputs = served
    executor.init(for_task(inputs, "1", "7"))
    budget = {FLOPS: 0.8 * executor.measure()[FLOPS]}
    executor.init(for_task(inputs, "1", "7", budget=budget))
    assert meets(executor.measure(), budget)
    executor.init(for_task(inputs, "1", "7", budget={FLOPS: 10.0}))
    with pytest.raises(StuckError, match="multiply-adds"):
        executor.iterate()


def test_algorithms_that_serve_tasks_refuse_assignments_without_one(served):
    executor, inputs = served
    with pytest.raises(ValueError, match="no task"):
        executor.init(inputs)
