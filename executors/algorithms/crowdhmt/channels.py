"""Channels chosen with noise, the sixth operator family (CrowdHMTware III-A1, eta6)."""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

import numpy as np

from executors.algorithms.adaptivenet.variants import Shrunk
from executors.structure import Structure

#: The standard deviation of the noise, which is added to the natural logarithm of a unit's importance.
_DEVIATION: Final = 0.5


class NoisyChannels(Shrunk):
    """Variants with fewer channels inside, some of them less important ones.

    Next to those of `shrink`, they give the search other channels to choose from. The noise is the same in
    every run. The amount is the share of channels that remains.
    """

    def span(self, amount: float) -> int:
        """Return 1; the amount has to be between 0 and 1."""
        if not 0 < amount < 1:
            raise ValueError("a share of the channels, above 0 and below 1")
        return super().span(amount)

    def worth(self, block: Structure) -> Mapping[str, np.ndarray]:
        """Return the importance of each unit, multiplied by log-normal noise."""
        rng = np.random.default_rng(crc32("".join(block.graph.layers).encode()))
        return {
            name: worth * np.exp(_DEVIATION * rng.standard_normal(worth.shape))
            for name, worth in super().worth(block).items()
        }
