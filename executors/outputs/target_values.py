"""What the values of targets say about an output, from about a thousand of them."""

from typing import Final

import numpy as np

from executors.data.storage import Array

#: Approximate number of examples whose targets are looked at.
_EXAMPLES: Final = 1_000


def is_one_hot(targets: Array) -> bool:
    """Check whether targets [examples, ..., classes] have one 1 at each position, and otherwise zeros."""
    sample = _sample(targets)
    return bool(len(sample) and np.isin(sample, (0, 1)).all() and (sample.sum(axis=-1) == 1).all())


def deviation(figures: Array) -> float:
    """Return the standard deviation of figures [examples, ...] from their means over the examples.

    NaN stands for unknown figures, which do not count; without any known ones, the deviation is 0.
    """
    sample = np.asarray(_sample(figures), np.float64)
    known = ~np.isnan(sample)
    counts = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, sample, 0.0).sum(axis=0) / counts
    errors = np.where(known, sample - means, 0.0)
    return float(np.sqrt(np.mean(np.square(errors).sum(axis=0) / counts)))


def _sample(targets: Array) -> Array:
    return targets[:: max(1, len(targets) // _EXAMPLES)]
