"""Numerical equivalence of two networks, up to rounding."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

#: Maximum difference between the outputs of equivalent networks.
TOLERANCE: Final = 1e-4


def difference(before: Iterable[Any], after: Iterable[Any]) -> float:
    """Return the largest difference between outputs; outputs with values above 1 are scaled by their maximum.

    Args:
        before: The outputs of one network.
        after: The outputs of the other network for the same inputs.
    """
    pairs = zip(map(np.asarray, before), map(np.asarray, after), strict=True)
    return float(np.max([np.abs(new - old).max() / max(1.0, np.abs(old).max()) for old, new in pairs]))
