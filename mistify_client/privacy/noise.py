"""Noise on local training data, so that a model trained on them can be shared (paper 5.1).

docs/privacy.md describes the protection, the threat model, and the limits.
"""

import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mistify.errors import ErrorCode, MistifyError
from mistify_client.privacy.discrete_laplace import Integers, RandomBytes, discrete_laplace
from mistify_client.privacy.ledger import PrivacyLedger

__all__ = ["Mechanism", "Unit", "privatize", "randomized_response"]

#: The number of grid steps between the bounds.
LEVELS: Final = 2**12

#: The weight of each wrong label in randomized response.
_WEIGHT: Final = 2**32


class Unit(StrEnum):
    """The unit protected by an epsilon: two data sets are neighbours if they differ in one unit."""

    #: One number of one example, such as a pixel.
    VALUE = "value"
    #: All numbers of one example.
    EXAMPLE = "example"


@dataclass(frozen=True)
class Mechanism:
    """The noise on data. Settings must not be derived from the data.

    Attributes:
        lower: Lower bound of values; lower values are clipped.
        upper: Upper bound of values; higher values are clipped.
        unit: The unit that the epsilons protect.
        epsilon: For the inputs of one release.
        label_epsilon: For the labels of one release; None leaves them unchanged and unprotected.
        radius: Maximum L1 distance of an example from the middle of the bounds; examples further away are
            moved towards it. Only for `Unit.EXAMPLE`, for which it reduces the noise; None for no limit.
    """

    lower: float
    upper: float
    unit: Unit
    epsilon: Fraction
    label_epsilon: Fraction | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        epsilons = [epsilon for epsilon in (self.epsilon, self.label_epsilon) if epsilon is not None]
        if not (math.isfinite(self.lower) and math.isfinite(self.upper) and self.lower < self.upper):
            raise ValueError(
                f"got the bounds {self.lower} and {self.upper}; expected a lower and an upper one"
            )
        if min(epsilons) <= 0:
            raise ValueError(f"got the epsilon {min(epsilons)}; expected one above 0")
        if self.radius is not None and (self.unit is not Unit.EXAMPLE or not self.radius > 0):
            raise ValueError(f"got the radius {self.radius}; expected one above 0, of examples")

    @property
    def total_epsilon(self) -> Fraction:
        """The epsilon of a release: the sum for inputs and labels."""
        return self.epsilon + (self.label_epsilon or 0)

    @property
    def step(self) -> float:
        """The step of the grid of values."""
        return (self.upper - self.lower) / LEVELS


def privatize(
    inputs: NDArray[Any],
    labels: NDArray[np.int64],
    mechanism: Mechanism,
    ledger: PrivacyLedger,
    *,
    classes: int,
    random_bytes: RandomBytes = os.urandom,
    randbelow: Callable[[int], int] = secrets.randbelow,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return noisy data to replace the true ones. The ledger is debited, durably, before noise is drawn.

    Further computation on the noisy data has no privacy cost: draw them once, and train on them as often as
    needed.

    Args:
        inputs: [examples, ...], finite.
        labels: [examples], from 0 to `classes` - 1.
        ledger: The ledger of these data.
        classes: Number of classes.
        random_bytes: Source of the noise on inputs, by default the operating system's.
        randbelow: Source of the noise on labels, by default the operating system's.

    Returns:
        Inputs [examples, ...], which may lie beyond the bounds, and labels [examples].

    Raises:
        MistifyError: PRIVACY_BUDGET, the budget does not suffice; INVALID_DATASET, inputs are not finite, or
            labels are out of range. Nothing was released.
    """
    if not np.isfinite(inputs).all():
        raise MistifyError(ErrorCode.INVALID_DATASET, "inputs are NaN or infinite; expected finite numbers")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise MistifyError(ErrorCode.INVALID_DATASET, f"labels are not all from 0 to {classes - 1}")
    values, sensitivity = _on_grid(inputs.reshape(len(inputs), -1), mechanism)
    ledger.spend(mechanism.total_epsilon, "noisy training data")
    noise = discrete_laplace(sensitivity / mechanism.epsilon, values.size, random_bytes)
    middle = (mechanism.lower + mechanism.upper) / 2
    noisy = middle + (values + noise.reshape(values.shape)) * mechanism.step
    if mechanism.label_epsilon is not None:
        labels = randomized_response(labels, classes, mechanism.label_epsilon, randbelow)
    return noisy.astype(np.float32).reshape(inputs.shape), labels


def randomized_response(
    labels: NDArray[np.int64],
    classes: int,
    epsilon: Fraction,
    randbelow: Callable[[int], int] = secrets.randbelow,
) -> NDArray[np.int64]:
    """Return labels by randomized response: the true one is at most exp(epsilon) times as likely as another.

    The factor is rounded down, so epsilon is never exceeded.

    Args:
        labels: [examples], from 0 to `classes` - 1.
        classes: Number of classes.
        epsilon: For each label.
        randbelow: Returns a random integer from 0 to its argument - 1.

    Returns:
        [examples].
    """
    context = Context(prec=60)
    factor = context.exp(context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator)))
    kept = int(factor * _WEIGHT)
    drawn = [randbelow(kept + (classes - 1) * _WEIGHT) for _ in labels]
    # The other classes are numbered starting after the true one.
    shifts = [0 if draw < kept else 1 + (draw - kept) // _WEIGHT for draw in drawn]
    return (labels + np.array(shifts, np.int64)) % classes


def _on_grid(values: NDArray[Any], mechanism: Mechanism) -> tuple[Integers, Fraction]:
    """Return values as grid steps from the middle of the bounds, and their sensitivity.

    The sensitivity is the maximum distance of neighbours in steps. It holds for the integers, so earlier
    rounding does not matter.

    Args:
        values: [examples, values].

    Returns:
        Steps [examples, values], and the sensitivity.
    """
    middle = (mechanism.lower + mechanism.upper) / 2
    steps = np.rint((values.astype(np.float64) - middle) / mechanism.step)
    steps = np.clip(steps, -LEVELS // 2, LEVELS // 2).astype(np.int64)
    if mechanism.unit is Unit.VALUE:
        return steps, Fraction(LEVELS)
    most = LEVELS // 2 * values.shape[1]
    if mechanism.radius is not None:
        most = max(1, min(most, int(mechanism.radius / mechanism.step)))
        lengths = np.maximum(np.abs(steps).sum(axis=1, keepdims=True), most)
        steps = np.sign(steps) * (np.abs(steps) * most // lengths)
    return steps, Fraction(2 * most)
