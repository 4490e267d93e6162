"""The analytic hierarchy process: weights of criteria from comparisons of pairs (Saaty 1980)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

#: The consistency ratio above which comparisons contradict each other too much (Saaty).
MOST_INCONSISTENT: Final = 0.1

#: The largest importance of one criterion compared with another.
MOST_IMPORTANT: Final = 9

#: The mean consistency index of random comparisons, by the number of criteria (Saaty).
_RANDOM_INDICES: Final = {1: 0.0, 2: 0.0, 3: 0.58, 4: 0.90}

#: (more important criterion, less important one) -> how many times as important.
Comparisons: TypeAlias = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Priorities:
    """The result of comparisons.

    Attributes:
        weights: Criterion -> its share; all shares add up to 1.
        inconsistency: The consistency ratio: 0 if the comparisons agree, 1 if they are as good as random.
    """

    weights: Mapping[str, float]
    inconsistency: float


def priorities(criteria: Sequence[str], comparisons: Comparisons) -> Priorities:
    """Return the weights that comparisons imply: the principal eigenvector of their reciprocal matrix.

    Args:
        criteria: At most four names.
        comparisons: One for each pair of criteria.
    """
    matrix = _matrix(criteria, comparisons)
    values, vectors = np.linalg.eig(matrix)
    principal = int(np.argmax(values.real))
    vector = np.abs(vectors[:, principal].real)
    weights = dict(zip(criteria, (vector / vector.sum()).tolist(), strict=True))
    number, random = len(criteria), _RANDOM_INDICES[len(criteria)]
    index = (values[principal].real - number) / max(number - 1, 1)
    return Priorities(weights, max(0.0, float(index / random)) if random else 0.0)


@dataclass(frozen=True)
class Correction:
    """The comparison that contradicts the others most, and its replacement.

    Attributes:
        pair: The comparison as given.
        better: The pair, the more important criterion first.
        importance: How many times as important it is, from 1 to `MOST_IMPORTANT`, by the other comparisons.
        inconsistency: The consistency ratio with this replacement.
    """

    pair: tuple[str, str]
    better: tuple[str, str]
    importance: int
    inconsistency: float


def correction(criteria: Sequence[str], comparisons: Comparisons) -> Correction:
    """Return the change of a single comparison that makes all of them most consistent."""
    return min(
        (
            Correction(pair, better, importance, _inconsistency_with(criteria, comparisons, pair, changed))
            for pair in comparisons
            for better in (pair, pair[::-1])
            for importance in range(1, MOST_IMPORTANT + 1)
            if (changed := {better: float(importance)})
        ),
        key=lambda one: round(one.inconsistency, 6),
    )


def _inconsistency_with(
    criteria: Sequence[str],
    comparisons: Comparisons,
    pair: tuple[str, str],
    changed: Comparisons,
) -> float:
    others = {key: value for key, value in comparisons.items() if key != pair}
    return priorities(criteria, {**others, **changed}).inconsistency


def _matrix(criteria: Sequence[str], comparisons: Comparisons) -> npt.NDArray[np.float64]:
    """Return the importance of each criterion (row) compared with each other one (column)."""
    matrix = np.eye(len(criteria))
    for (row, one), (column, other) in combinations(enumerate(criteria), 2):
        importance = comparisons.get((one, other)) or 1 / comparisons[other, one]
        matrix[row, column], matrix[column, row] = importance, 1 / importance
    return matrix
