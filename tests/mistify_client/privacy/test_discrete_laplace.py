"""The noise compared with scipy's discrete Laplace distribution, which is computed differently."""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from mistify_client.privacy.discrete_laplace import (
    PROBABILITY_BITS,
    _bernoulli,
    _probability,
    discrete_laplace,
)

SAMPLES = 40_000


def seeded(seed: int):
    """Return a reproducible source of random bytes."""
    rng = np.random.default_rng(seed)
    return rng.bytes


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40)])
def test_samples_have_the_probabilities_of_the_distribution(scale):
    samples = discrete_laplace(scale, SAMPLES, seeded(int(scale * 6)))
    reference = stats.dlaplace(1 / float(scale))
    edge = int(reference.ppf(1 - 20 / SAMPLES))  # at least twenty expected samples per cell
    cells = np.arange(-edge, edge + 1)
    expected = SAMPLES * np.concatenate(
        [[reference.cdf(-edge - 1)], reference.pmf(cells), [reference.sf(edge)]]
    )
    observed = [(samples < -edge).sum(), *[(samples == cell).sum() for cell in cells], (samples > edge).sum()]
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_samples_at_large_scales_follow_the_continuous_distribution():
    """A Kolmogorov-Smirnov test against the continuous distribution, which differs by only 1e-6 here."""
    scale = 10**6
    samples = discrete_laplace(Fraction(scale), SAMPLES, seeded(1))
    assert stats.kstest(samples, stats.laplace(scale=scale).cdf).pvalue > 1e-3


def test_probabilities_of_neighbouring_values_differ_by_at_most_exp_epsilon():
    """The definition of differential privacy, for data that differ by the sensitivity."""
    epsilon, sensitivity = 1.0, 3
    samples = discrete_laplace(Fraction(sensitivity), 200_000, seeded(2))
    for outcome in range(-6, 7):
        here, there = (samples == outcome).mean(), (samples + sensitivity == outcome).mean()
        spread = 5 * math.sqrt(max(here, there) / len(samples))
        assert here <= math.exp(epsilon) * there + spread
        assert there <= math.exp(epsilon) * here + spread


def test_samples_from_the_operating_system_differ():
    first, second = (discrete_laplace(Fraction(1000), 100) for _ in range(2))
    assert (first != second).any()
    assert np.array_equal(
        discrete_laplace(Fraction(1000), 100, seeded(1)), discrete_laplace(Fraction(1000), 100, seeded(1))
    )


def test_more_bits_are_drawn_if_the_first_ones_equal_those_of_the_probability():
    """At scale 1, the first digit is 1 with probability 1 / (1 + e), 0.0100 0100 1101... in binary."""
    bits = int(Fraction(1 / (1 + Fraction(math.e))) * 2**64)  # exact to 52 bits, which suffice
    words = _probability(Fraction(1))
    assert words[0] >> 16 == bits >> 16
    for second, expected in ((words[1] - 1, True), (words[1] + 1, False)):
        drawn = iter([words[0].to_bytes(8, "little"), second.to_bytes(8, "little")])
        assert _bernoulli(words, 1, lambda count, drawn=drawn: next(drawn)).tolist() == [expected]
        assert next(drawn, None) is None


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**60)])
def test_invalid_scales_are_refused(scale):
    with pytest.raises(ValueError, match="expected a scale"):
        discrete_laplace(scale, 1, os.urandom)


def test_the_probability_of_a_digit_is_correct_in_all_bits():
    """Compared with the exponential series in rational numbers."""
    for exponent in (Fraction(1, 1000), Fraction(1), Fraction(22, 7), Fraction(60)):
        term = power = Fraction(1)
        for number in range(1, 400):
            term = term * exponent / number
            power += term
        expected = int(2**PROBABILITY_BITS / (1 + power))
        words = _probability(exponent)
        assert (
            abs(sum(word << shift for word, shift in zip(words, (192, 128, 64, 0), strict=True)) - expected)
            <= 1
        )
