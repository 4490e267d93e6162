"""The reservoir: recent examples, balanced by class, without copies that take more memory than needed."""

from collections import Counter

import numpy as np
import pytest

from mistify.adaptation.reservoir import Reservoir


def filled(reservoir, labels):
    """Add examples that say their number and label."""
    for number, label in enumerate(labels):
        reservoir.add({"x": np.array([number, label], np.float32)}, label)
    return reservoir


def content(reservoir):
    drawn = reservoir.drawn(len(reservoir), np.random.default_rng(0))
    return sorted((int(one["x"][0, 0]), int(one["x"][0, 1])) for one in drawn)


def test_each_class_has_at_most_its_share():
    rng = np.random.default_rng(0)
    reservoir = filled(Reservoir(10, capacity=40), rng.permutation([0] * 200 + list(range(1, 10)) * 3))
    counts = Counter(label for _, label in content(reservoir))
    assert counts == {0: 4, **dict.fromkeys(range(1, 10), 3)}


def test_the_most_recent_examples_of_a_class_stay():
    reservoir = filled(Reservoir(2, capacity=6), [0, 0, 0, 0, 0, 1])
    assert content(reservoir) == [(2, 0), (3, 0), (4, 0), (5, 1)]


def test_with_more_classes_than_places_frequent_ones_give_way():
    reservoir = filled(Reservoir(1000, capacity=8), [1, 1, *range(2, 30)])
    labels = [label for _, label in content(reservoir)]
    assert len(labels) == 8
    assert 1 not in labels or labels.count(1) == 1


def test_draws_are_different_examples_with_a_batch_axis():
    drawn = filled(Reservoir(10), range(10)).drawn(6, np.random.default_rng(1))
    assert len({int(one["x"][0, 0]) for one in drawn}) == 6
    assert drawn[0]["x"].shape == (1, 2)


@pytest.mark.parametrize(
    ("array", "bytes_each", "error"),
    [
        (np.arange(256, dtype=np.float32), 1, 0),
        (np.linspace(-1, 1, 100, dtype=np.float32), 2, 1e-3),
        (np.array([0.5, 1e6], np.float32), 4, 0),
        (np.arange(7, dtype=np.int32), 4, 0),
        (np.arange(7, dtype=np.uint8), 1, 0),
    ],
)
def test_examples_are_kept_in_few_bytes_and_come_back_in_their_own_type(array, bytes_each, error):
    reservoir = Reservoir(2)
    reservoir.add({"x": array}, 0)
    assert reservoir.bytes == bytes_each * array.size
    ((back,),) = [list(one.values()) for one in reservoir.drawn(1, np.random.default_rng(0))]
    assert back.dtype == array.dtype
    assert np.abs(back[0] - array).max() <= error


def test_examples_are_copies():
    array, reservoir = np.zeros(3, np.uint8), Reservoir(2)
    reservoir.add({"x": array}, 0)
    array[:] = 9
    assert not reservoir.drawn(1, np.random.default_rng(0))[0]["x"].any()
