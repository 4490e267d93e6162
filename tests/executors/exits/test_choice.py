"""The choice of exits and thresholds, compared with counts by hand and with a large sample."""

from itertools import combinations

import numpy as np
import pytest

from executors.exits.choice import Answers, best_exits, costs_of, within
from executors.outputs.confidence import bound_on_loss


def drawn(count, seed):
    """Return answers of two exits and the network; confident exits are right more often."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.3, 1, (2, count)).astype(np.float32)
    right = rng.random((2, count)) < confidence
    return Answers(confidence, np.vstack([right, rng.random(count) < 0.9]))


BY_HAND = Answers.of(
    [
        np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]], np.float32),
        np.array([[0.9, 0.1], [0.3, 0.7], [0.7, 0.3], [0.8, 0.2]], np.float32),
        np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.9, 0.1]], np.float32),
    ],
    np.array([0, 1, 1, -1]),
)


def test_the_first_confident_exit_answers():
    outcome = BY_HAND.at(0.7)
    assert outcome.ends.tolist() == [0, 1, 0]  # without the example of an unknown class
    assert outcome.right.tolist() == [True, True, True]
    assert outcome.whole.tolist() == [True, True, False]
    assert outcome.loss == pytest.approx(-1 / 3)
    np.testing.assert_allclose(outcome.rates(3), [2 / 3, 1 / 3, 0])
    assert BY_HAND.at(0.95).ends.tolist() == [2, 2, 2]
    assert BY_HAND.at(0.95).loss == 0


def test_exits_that_are_left_out_do_not_answer():
    assert BY_HAND.of_exits([1]).at(0.7).ends.tolist() == [0, 0, 0]
    assert BY_HAND.of_exits([1]).at(0.8).ends.tolist() == [0, 1, 1]


def test_heads_cost_multiply_adds_in_all_later_stages():
    np.testing.assert_array_equal(costs_of([10, 20], [1, 2], 50), [11, 23, 53])


def test_the_lowest_threshold_within_the_bound_is_chosen():
    answers = drawn(2_000, 0)
    outcome = within(answers, 0.02)
    assert outcome.bound == bound_on_loss(outcome.whole, outcome.right) <= 0.02
    assert answers.at(outcome.threshold - 0.005).bound > 0.02
    assert outcome.loss < outcome.bound


def test_too_few_examples_allow_no_exit():
    assert within(drawn(50, 0), 0.005) is None


def test_the_allowed_loss_is_kept_on_other_data():
    """The chosen threshold loses more than allowed in at most one of ten samples."""
    population = drawn(200_000, 99)
    lost = []
    for seed in range(60):
        outcome = within(drawn(1_500, seed), 0.02)
        lost.append(0.0 if outcome is None else population.at(outcome.threshold).loss)
    assert np.mean(np.array(lost) > 0.02) <= 0.1
    assert np.median(lost) > 0.002


def test_the_exits_with_the_least_cost_are_chosen():
    rng = np.random.default_rng(1)
    confidence = np.sort(rng.uniform(0.3, 1, (4, 400)), axis=0).astype(np.float32)
    right = np.vstack([rng.random((4, 400)) < confidence, rng.random(400) < 0.93])
    answers, trunk, heads = Answers(confidence, right), [20, 40, 60, 80], [1, 1, 1, 1]

    def least(exits):
        """Return the least expected cost, by a loop over examples."""
        costs, total = costs_of([trunk[at] for at in exits], [1] * len(exits), 100), 0.0
        for allowed in (0.01, 0.03):
            best = costs[-1]
            for threshold in np.arange(0.995, 0.3, -0.005):
                ends = [
                    next((n for n, at in enumerate(exits) if column[at] >= np.float32(threshold)), len(exits))
                    for column in confidence.T
                ]
                chosen = [right[(*exits, 4)[end], row] for row, end in enumerate(ends)]
                if right[-1].mean() - np.mean(chosen) > allowed:
                    break
                best = np.mean(costs[ends])
            total += best
        return total

    sets = [exits for size in (1, 2) for exits in combinations(range(4), size)]
    actual = best_exits(answers, trunk, heads, 100, (0.01, 0.03))
    assert least(actual) <= min(map(least, sets)) + 1e-9
    assert 1 <= len(actual) <= 3
