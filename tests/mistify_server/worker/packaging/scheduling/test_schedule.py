"""The memory of schedules, and their order with the least of it."""

from itertools import permutations

import pytest

from mistify_server.worker.packaging.scheduling.schedule import Schedule, Step, with_least_memory
from tests.mistify_server.worker.packaging.scheduling.schedules import (
    computed,
    random_schedule,
    simulated_peak,
)


@pytest.mark.parametrize("seed", range(20))
def test_the_peak_is_that_of_a_simulation(seed):
    schedule = random_schedule(seed)
    assert schedule.peak == simulated_peak(schedule)


@pytest.mark.parametrize("seed", range(20))
def test_a_new_order_computes_the_same_with_no_more_memory(seed):
    schedule = random_schedule(seed)
    reordered = with_least_memory(schedule)
    assert sorted(reordered.steps, key=lambda step: step.operator) == list(schedule.steps)
    assert computed(reordered) == computed(schedule)
    assert simulated_peak(reordered) <= simulated_peak(schedule)


def test_most_orders_have_a_lower_peak():
    found = [(random_schedule(seed), with_least_memory(random_schedule(seed))) for seed in range(20)]
    assert sum(after.peak < 0.95 * before.peak for before, after in found) > 10


def test_updates_follow_their_gradients_at_once():
    """Three gradients of 10 bytes from one input, with an update each: one gradient exists at a time."""
    gradients = [Step(at, (0,), (at + 1,)) for at in range(3)]
    updates = [Step(at + 3, (at + 1,), (at + 4,)) for at in range(3)]
    sizes = {0: 1, **dict.fromkeys((1, 2, 3), 10), **dict.fromkeys((4, 5, 6), 0)}
    schedule = Schedule((*gradients, *updates), sizes, (0,), (), {})
    assert schedule.peak == 31
    best = min(
        Schedule(order, sizes, (0,), (), {}).peak
        for order in permutations(schedule.steps)
        if all(order.index(a) < order.index(b) for a, b in zip(gradients, updates, strict=True))
    )
    assert with_least_memory(schedule).peak == best == 11


def test_operators_that_have_to_run_before_others_do():
    """A variable is read before a large value is written to it, though no tensor says so."""
    read, made, written = Step(0, (), (1,)), Step(1, (), (2,)), Step(2, (2,), (3,))
    sizes = {1: 50, 2: 80, 3: 1}
    schedule = Schedule((read, made, written), sizes, (), (1, 3), {})
    assert [step.operator for step in with_least_memory(schedule).steps] == [1, 2, 0]
    bound = Schedule((read, made, written), sizes, (), (1, 3), {2: {0}})
    assert [step.operator for step in with_least_memory(bound).steps] == [0, 1, 2]
