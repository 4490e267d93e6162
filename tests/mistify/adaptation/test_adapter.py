"""The adapter on a network of one norm that is computed here: what it learns, and when it learns nothing."""

import numpy as np
import pytest

from mistify.adaptation.adapter import Adapter, GraphObserver, spread
from mistify.adaptation.statistics import FoldedNorms, Statistics

GAMMA, BETA, EPSILON = np.float32([2.0, -1.0, 0.0]), np.float32([0.5, 0.0, 1.0]), np.full(3, 1e-3, np.float32)
SHIPPED = Statistics(np.float32([1.0, -2.0, 0.0]), np.float32([4.0, 0.25, 1.0]))
#: Moves without a shift: of the variances of both norms, and of their means.
USUAL = np.float32([0.1, 0.1, 0.2, 0.2])
NORMS = FoldedNorms((2, 1), GAMMA, BETA, EPSILON, SHIPPED, USUAL)


def folded(read):
    """The outputs of the folded operators [positions, 3] for what the norms would read."""
    return GAMMA * (read - SHIPPED.mean) / np.sqrt(SHIPPED.variance + EPSILON) + BETA


def run(example, factors, summands):
    computed = folded(example["x"][0])
    means, squares = computed.mean(0), (computed**2).mean(0)
    outputs = computed * np.concatenate(factors) + np.concatenate(summands)
    classes = np.eye(4)[int(outputs[:, 0].mean() > 0)]
    return classes, np.split(means, [2]), np.split(squares, [2])


def stream(count, statistics, rng, classes=4):
    """Add examples whose norms read these statistics, with predictions of alternating classes."""
    for number in range(count):
        read = rng.normal(statistics.mean, np.sqrt(statistics.variance), (64, 3)).astype(np.float32)
        yield {"x": read}, np.eye(4)[number % classes]


def adapted(examples, **options):
    adapter = Adapter(NORMS, [GraphObserver((0, 1), run)], 4, **options)
    for example, prediction in examples:
        adapter.add(example, prediction)
        adapter.update()
    return adapter


OTHER = Statistics(np.float32([3.0, -2.5, 7.0]), np.float32([1.0, 1.0, 9.0]))


def test_statistics_converge_to_those_of_the_stream():
    adapter = adapted(stream(960, OTHER, np.random.default_rng(0)))
    assert np.abs(adapter.statistics.mean - OTHER.mean)[:2].max() < 0.1
    assert np.abs(np.log(adapter.statistics.variance / OTHER.variance))[:2].max() < 0.1
    assert adapter.shift == pytest.approx(np.log(4) / USUAL[0], rel=0.1)


def test_the_recent_shift_is_about_the_distance_that_is_left():
    moved = Statistics(SHIPPED.mean + np.float32([4, 0, 0]), SHIPPED.variance)
    adapter = adapted(stream(7 * 16, moved, np.random.default_rng(0)))
    left = NORMS.shift(moved, adapter.statistics)
    assert adapter.recent_shift == adapter.shift == pytest.approx(left, rel=0.2)
    assert adapted(stream(6 * 16, OTHER, np.random.default_rng(0))).recent_shift == float("inf")
    assert adapted(stream(40 * 16, OTHER, np.random.default_rng(0))).recent_shift < 1


def test_the_largest_move_of_a_norm_is_the_shift():
    means = Statistics(SHIPPED.mean + np.float32([0, 0.25, 0]), SHIPPED.variance)
    assert NORMS.moves(means) == pytest.approx([0, 0, 0.25, 0], rel=1e-2)
    assert NORMS.shift(means) == pytest.approx(0.25 / 0.2, rel=1e-2)
    wider = Statistics(means.mean, means.variance * np.float32([1, 1, np.e]))
    assert NORMS.shift(wider) == pytest.approx(1 / 0.1, rel=1e-2)


def test_a_channel_whose_factor_is_zero_keeps_its_statistics():
    adapter = adapted(stream(64, OTHER, np.random.default_rng(0)))
    assert adapter.statistics.mean[2] == SHIPPED.mean[2]
    assert adapter.statistics.variance[2] == SHIPPED.variance[2]
    assert np.concatenate(NORMS.changes(OTHER)[0])[2] == 1
    assert np.concatenate(NORMS.changes(OTHER)[1])[2] == 0


def test_the_shipped_stream_moves_nothing():
    assert adapted(stream(640, SHIPPED, np.random.default_rng(0))).shift < 0.5


def test_changes_make_the_norm_that_of_other_statistics():
    read = np.random.default_rng(0).normal(2, 3, (50, 3)).astype(np.float32)
    factors, summands = map(np.concatenate, NORMS.changes(OTHER))
    expected = GAMMA * (read - OTHER.mean) / np.sqrt(OTHER.variance + EPSILON) + BETA
    assert np.abs(folded(read) * factors + summands - expected)[:, :2].max() < 1e-4


def test_expected_moments_are_those_that_show_the_statistics():
    back = NORMS.observed(*NORMS.expected(OTHER))
    assert np.allclose(back.mean[:2], OTHER.mean[:2], atol=1e-4)
    assert np.allclose(back.variance[:2], OTHER.variance[:2], rtol=1e-3)


def test_one_class_alone_teaches_nothing():
    adapter = adapted(stream(320, OTHER, np.random.default_rng(0), classes=1))
    assert adapter.shift == 0
    assert adapter.spread < 0.01


def test_there_is_one_inference_for_each_example():
    calls = []

    def counted(*arguments):
        calls.append(1)
        return run(*arguments)

    adapter = Adapter(NORMS, [GraphObserver((0, 1), counted)], 4)
    for example, prediction in stream(100, OTHER, np.random.default_rng(0)):
        adapter.add(example, prediction)
        adapter.update()
    assert len(calls) == 96


def test_branches_are_observed_in_turn_and_keep_what_only_others_have():
    base = GraphObserver((0,), lambda *given: (run(*given_all(given))[0], *firsts(run(*given_all(given)))))
    adapter = Adapter(NORMS, [base], 4)
    for example, prediction in stream(320, OTHER, np.random.default_rng(0)):
        adapter.add(example, prediction)
        adapter.update()
    assert np.abs(adapter.statistics.mean - SHIPPED.mean)[:2].min() > 0.1
    assert adapter.statistics.mean[2] == pytest.approx(SHIPPED.mean[2], abs=1e-6)


def given_all(given):
    example, factors, summands = given
    return example, [*factors, np.ones(1)], [*summands, np.zeros(1)]


def firsts(seen):
    return seen[1][:1], seen[2][:1]


def test_it_continues_with_statistics():
    assert adapted([], statistics=OTHER).statistics is OTHER


def test_forgetting_examples_keeps_statistics():
    adapter = adapted(stream(64, OTHER, np.random.default_rng(0)))
    shift = adapter.shift
    adapter.forget()
    assert (adapter.update(), adapter.spread, adapter.shift) == (0, 0.0, shift)


def test_the_spread_is_a_share():
    assert spread([np.eye(4)[number % 4] for number in range(8)]) == pytest.approx(1)
    assert spread([np.eye(4)[0]]) == pytest.approx(0, abs=1e-6)
    assert spread([np.array([0.5, 0.5, 0, 0])]) == pytest.approx(0.5)
