"""Exact sampling of Laplacian noise on integers (paper 5.1).

Floating-point noise leaks information: the set of floats that a sum can take depends on the true value
(Mironov 2012). Here values, noise and sums are integers, and probabilities are not rounded to floats.

The discrete Laplace distribution of scale t has P(z) = (1 - q) / (1 + q) q^|z|, q = exp(-1/t). It is the
distribution of the difference of two geometric variables, P(g) = (1 - q) q^g. The binary digits of a
geometric variable are independent: digit i is 1 with probability 1 / (1 + exp(2^i / t)). Digits are drawn by
comparing random bits with the bits of the probability, up to `PROBABILITY_BITS` of them if necessary.
"""

import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

#: Returns this many random bytes.
RandomBytes = Callable[[int], bytes]

#: The precision of probabilities in bits.
PROBABILITY_BITS: Final = 256

_WORD_BITS: Final = 64
_WORD = np.dtype("<u8")
_CONTEXT: Final = Context(prec=120)

#: Digits with a probability below exp(-this), which is less than 2^-256, are omitted.
_LEAST_LIKELY: Final = 178

_MOST_DIGITS: Final = 61


def discrete_laplace(scale: Fraction, count: int, random_bytes: RandomBytes = os.urandom) -> Integers:
    """Draw independent samples of the discrete Laplace distribution.

    The total variation distance of each to the exact distribution is at most 2^-240. The running time does
    not depend on the samples, except for digits that 64 bits do not decide, one in 2^64.

    Args:
        scale: The t above, greater than 0; the standard deviation is about sqrt(2) times the scale.
        count: Number of samples.
        random_bytes: The source of randomness, by default the operating system's.

    Returns:
        [count].

    Raises:
        ValueError: The scale is not above 0, or so large that samples may not fit 64 bits.
    """
    if scale <= 0:
        raise ValueError(f"got the scale {scale}; expected a scale above 0")
    return _geometric(scale, count, random_bytes) - _geometric(scale, count, random_bytes)


def _geometric(scale: Fraction, count: int, random_bytes: RandomBytes) -> Integers:
    """Draw geometric samples [count], with P(g) proportional to exp(-g / scale)."""
    samples = np.zeros(count, np.int64)
    for position in range(_digits(scale)):
        words = _probability(Fraction(2**position) / scale)
        samples |= _bernoulli(words, count, random_bytes).astype(np.int64) << position
    return samples


def _digits(scale: Fraction) -> int:
    """Return the maximum number of binary digits of a sample."""
    digits = 1
    while Fraction(2**digits) / scale <= _LEAST_LIKELY:
        digits += 1
    if digits > _MOST_DIGITS:
        raise ValueError(f"got the scale {float(scale):.3g}; expected a scale whose samples fit in 64 bits")
    return digits


def _probability(exponent: Fraction) -> list[int]:
    """Return the bits of 1 / (1 + exp(exponent)) after the binary point, in words of 64 bits."""
    power = _CONTEXT.exp(_CONTEXT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator)))
    probability = Fraction(_CONTEXT.divide(Decimal(1), _CONTEXT.add(Decimal(1), power)))
    bits = int(probability * 2**PROBABILITY_BITS)
    return [
        (bits >> shift) % 2**_WORD_BITS for shift in range(PROBABILITY_BITS - _WORD_BITS, -1, -_WORD_BITS)
    ]


def _bernoulli(words: list[int], count: int, random_bytes: RandomBytes) -> NDArray[np.bool_]:
    """Draw booleans [count], true if the random bits are below the bits of the probability."""
    drawn = np.frombuffer(random_bytes(count * _WORD.itemsize), _WORD)
    below: NDArray[np.bool_] = drawn < np.uint64(words[0])
    undecided = np.flatnonzero(drawn == np.uint64(words[0]))
    if undecided.size and len(words) > 1:
        below[undecided] = _bernoulli(words[1:], undecided.size, random_bytes)
    return below
