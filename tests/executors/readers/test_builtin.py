"""The built-in digits, compared with scikit-learn's loader."""

import numpy as np
from sklearn.datasets import load_digits

from executors.readers.builtin import read_builtin


def test_the_digits_are_those_of_scikit_learn() -> None:
    parts = [read_builtin(f"builtin:digits-{part}") for part in ("train", "test")]
    images, classes = (np.concatenate([part[name] for part in parts]) for name in "xy")
    expected = load_digits()
    order = np.random.default_rng(0).permutation(len(expected.target))
    order = np.concatenate([order[len(order) // 5 :], order[: len(order) // 5]])
    np.testing.assert_array_equal(16 * images[..., 0], expected.images[order])
    np.testing.assert_array_equal(classes, expected.target[order])
    assert classes.dtype == np.int64
