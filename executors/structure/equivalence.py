"""Whether two networks compute the same, up to rounding."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

#: Outputs of networks that compute the same differ by no more.
TOLERANCE: Final = 1e-4


def difference(before: Iterable[Any], after: Iterable[Any]) -> float:
    """Return the largest difference between outputs, relative to the largest value of each if above 1.

    Args:
        before: The outputs of one network.
        after: The outputs of the other network for the same inputs.
    """
    pairs = zip(map(np.asarray, before), map(np.asarray, after), strict=True)
    return float(np.max([np.abs(new - old).max() / max(1.0, np.abs(old).max()) for old, new in pairs]))
