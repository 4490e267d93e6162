"""Repeated operators: the same results, with less memory."""

import pytest

from mistify_server.worker.packaging.scheduling.recomputation import with_recomputation
from mistify_server.worker.packaging.scheduling.schedule import Schedule, Step
from tests.mistify_server.worker.packaging.scheduling.schedules import (
    computed,
    random_schedule,
    simulated_peak,
)


def forward_and_back():
    """A copy (1) of the input that the last step reads again, behind a step (2, 3) that takes much memory."""
    steps = (Step(0, (0,), (1,)), Step(1, (1,), (2,)), Step(2, (2,), (3,)), Step(3, (3, 1), (4,)))
    return Schedule(steps, {0: 1, 1: 50, 2: 100, 3: 10, 4: 1}, (0,), (4,), {})


def test_a_large_tensor_is_computed_again_instead_of_kept():
    schedule = forward_and_back()
    less = with_recomputation(schedule, {0})
    assert schedule.peak == 161
    assert less.peak == simulated_peak(less) == 151
    assert [step.operator for step in less.steps] == [0, 1, 2, 0, 3]
    assert computed(less) == computed(schedule)


def test_operators_that_may_not_run_again_do_not():
    schedule = forward_and_back()
    assert with_recomputation(schedule, {1, 2, 3}) == schedule


def test_tensors_that_are_computed_from_released_ones_repeat_both():
    """Two copies, one of the other: only the input is still there."""
    steps = (
        Step(0, (0,), (1,)),
        Step(1, (1,), (2,)),
        Step(2, (2,), (3,)),
        Step(3, (3,), (4,)),
        Step(4, (4, 2), (5,)),
    )
    schedule = Schedule(steps, {0: 1, 1: 40, 2: 50, 3: 100, 4: 10, 5: 1}, (0,), (5,), {})
    less = with_recomputation(schedule, {0, 1})
    assert [step.operator for step in less.steps] == [0, 1, 2, 3, 0, 1, 4]
    assert simulated_peak(less) == less.peak < schedule.peak
    assert computed(less) == computed(schedule)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_compute_the_same_with_no_more_memory(seed):
    schedule = random_schedule(seed, 60)
    less = with_recomputation(schedule, set(range(0, 60, 2)))
    assert computed(less) == computed(schedule)
    assert less.peak == simulated_peak(less) <= schedule.peak


def test_most_random_graphs_need_less():
    found = [random_schedule(seed, 60) for seed in range(30)]
    assert sum(with_recomputation(one, set(range(60))).peak < one.peak for one in found) > 15
