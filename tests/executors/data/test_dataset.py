import numpy as np
import pytest

from executors.data import Dataset, split


def test_a_split_contains_every_example_once():
    numbers = np.arange(43)
    data = Dataset({"x": numbers[:, None]}, {"y": numbers})
    first, second = split(data, 0.1)
    assert (len(first), len(second)) == (39, 4)
    assert sorted([*first.targets["y"], *second.targets["y"]]) == list(numbers)
    for part in (first, second):
        np.testing.assert_array_equal(part.inputs["x"][:, 0], part.targets["y"])
    assert split(data, 0.1)[1].targets["y"].tolist() == second.targets["y"].tolist()
    assert split(data, 0.1, seed=1)[1].targets["y"].tolist() != second.targets["y"].tolist()


def test_a_split_holds_out_the_same_share_of_each_class():
    classes = np.repeat(np.arange(4), [400, 100, 40, 20])
    labels = np.random.default_rng(0).permutation(classes)
    _, held_out = split(Dataset({"x": labels}, {"y": labels}), 0.1)
    assert np.bincount(held_out.targets["y"]).tolist() == [40, 10, 4, 2]


def test_the_only_example_of_a_class_is_used_for_training():
    labels = np.r_[np.zeros(30, np.int64), np.arange(1, 31)]
    for seed in range(20):
        _, held_out = split(Dataset({"x": labels}, {"y": labels}), 0.3, seed)
        assert held_out.targets["y"].tolist() == [0] * 18


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_two_examples_of_a_class_are_split_evenly(share):
    data = Dataset({"x": np.arange(2)}, {"y": np.array([0.5, 0.7], np.float32)})
    assert [len(part) for part in split(data, share)] == [1, 1]
