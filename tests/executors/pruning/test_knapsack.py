"""Choices by dynamic programming, compared with all possible choices."""

from itertools import product

import numpy as np
import pytest

from executors.pruning.knapsack import cheapest_choices


def problem(seed, kinds):
    """Return losses and integer costs, partly negative, of five items with two to five choices."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 6, 5)
    losses = [rng.random(count) for count in counts]
    costs = [rng.integers(-4, 9, (count, kinds)).astype(float) for count in counts]
    return losses, costs


def totals(losses, costs, picks):
    loss = sum(own[pick] for own, pick in zip(losses, picks, strict=True))
    return loss, np.sum([own[pick] for own, pick in zip(costs, picks, strict=True)], axis=0)


def least_loss(losses, costs, room):
    """Return the least loss of all choices within the room; None if there are none."""
    every = (totals(losses, costs, picks) for picks in product(*(range(len(own)) for own in losses)))
    return min((loss for loss, cost in every if (cost <= room).all()), default=None)


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_the_loss_is_the_least_of_all_choices(seed, kinds):
    losses, costs = problem(seed, kinds)
    for least in (-15.0, -8.0, 0.0, 7.0):
        room = least + np.arange(kinds)
        picks, best = cheapest_choices(losses, costs, room), least_loss(losses, costs, room)
        if best is None:
            assert picks is None
            continue
        loss, cost = totals(losses, costs, picks)
        assert loss == pytest.approx(best)
        assert (cost <= room).all()


def test_without_room_only_choices_without_costs_are_taken():
    losses, costs = [np.array([1.0, 0.0])] * 2, [np.array([[0.0], [1.0]])] * 2
    assert cheapest_choices(losses, costs, np.array([0.0])) == [0, 0]
    assert cheapest_choices(losses, costs, np.array([-1.0])) is None
