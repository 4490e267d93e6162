"""Tensors are rounded to the nearest of 256 numbers between their least and their greatest."""

import numpy as np
import pytest

from mistify.package.rounding import RoundedTensor, rounded


def nearest(tensor: np.ndarray) -> np.ndarray:
    """Return the nearest of 256 evenly spaced numbers for each number, by looking at all of them."""
    numbers = np.linspace(tensor.min(), tensor.max(), 256, dtype=np.float64)
    return numbers[np.abs(tensor[..., None].astype(np.float64) - numbers).argmin(-1)]


@pytest.mark.parametrize(
    ("low", "high"), [(-3.0, 5.0), (0.0, 6.0), (1e-30, 3e-30), (-1e37, 1e37), (100.0, 100.001)]
)
def test_each_number_becomes_the_nearest_of_256(low, high) -> None:
    tensor = np.random.default_rng(0).uniform(low, high, (3, 40)).astype(np.float32)
    sent = RoundedTensor.of(tensor)
    assert sent is not None
    assert (sent.steps.dtype, sent.steps.shape, sent.is_finite) == (np.uint8, (3, 40), True)
    assert (sent.steps.min(), sent.steps.max()) == (0, 255)
    scale = np.abs(tensor).max()
    np.testing.assert_allclose(sent.restored() / scale, nearest(tensor) / scale, atol=2e-7)
    np.testing.assert_array_equal(rounded(tensor), sent.restored())


def test_zeros_after_a_relu_stay_zeros() -> None:
    tensor = np.maximum(np.random.default_rng(0).normal(size=1000), 0).astype(np.float32)
    np.testing.assert_array_equal(rounded(tensor)[tensor == 0], 0)


@pytest.mark.parametrize("value", [0.0, -2.5, 3e38])
def test_equal_numbers_stay_what_they_are(value) -> None:
    tensor = np.full((2, 3), value, np.float32)
    np.testing.assert_array_equal(rounded(tensor), tensor)


@pytest.mark.parametrize("values", [[1, np.nan], [1, np.inf], [-np.inf, 0], [-3e38, 3e38]])
def test_numbers_without_a_finite_range_are_not_rounded(values) -> None:
    tensor = np.array(values, np.float32)
    assert RoundedTensor.of(tensor) is None
    np.testing.assert_array_equal(rounded(tensor), tensor)


@pytest.mark.parametrize(
    ("step", "least"), [(-1.0, 0.0), (np.nan, 0.0), (1.0, np.nan), (np.inf, 0.0), (3e38, 0.0), (0.0, -np.inf)]
)
def test_numbers_that_would_not_be_finite_are_recognised(step, least) -> None:
    assert not RoundedTensor(np.zeros(1, np.uint8), step, least).is_finite
