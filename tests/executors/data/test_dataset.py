import numpy as np

from executors.data import Dataset, split


def test_a_split_keeps_every_example_once():
    numbers = np.arange(43)
    data = Dataset({"x": numbers[:, None]}, {"y": numbers})
    first, second = split(data, 0.1)
    assert (len(first), len(second)) == (39, 4)
    assert sorted([*first.targets["y"], *second.targets["y"]]) == list(numbers)
    for part in (first, second):
        np.testing.assert_array_equal(part.inputs["x"][:, 0], part.targets["y"])
    assert split(data, 0.1)[1].targets["y"].tolist() == second.targets["y"].tolist()
    assert split(data, 0.1, seed=1)[1].targets["y"].tolist() != second.targets["y"].tolist()
