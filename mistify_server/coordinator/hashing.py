"""Hashes by which near points fall into the same buckets (p-stable LSH, Datar et al. 2004).

A hash is h(v) = floor((a.v + b) / w) with a from the normal distribution, which is 2-stable: a.v - a.u is
distributed as |v - u| times a normal variable. A table's bucket is named by k hashes; two points meet
if they share a bucket in one of L tables.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

#: Bytes of a bucket's name.
KEY_BYTES: Final = 8


@dataclass(frozen=True)
class Parameters:
    """Parameters of an index.

    Attributes:
        tables: L, in each of which a point has one bucket.
        hashes: k, the hashes that name a bucket; without any, all points share one.
        width: w, in the unit of the points.
    """

    tables: int
    hashes: int
    width: float


class Hashes:
    """The hashes of all tables, drawn from a seed.

    The k hashes of a bucket are folded into one number, as Datar et al. do: a random linear combination of
    them modulo 2^64, so that a neighbouring bucket's number is one addition away. If two buckets
    get the same number by chance, a few more distances are computed; no neighbour is lost.
    """

    def __init__(self, parameters: Parameters, dimension: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shape = parameters.tables, parameters.hashes
        self._directions = rng.standard_normal((dimension, *shape)) / parameters.width
        self._offsets = rng.random(shape)
        self._factors = rng.integers(0, 2**64, shape, np.uint64, endpoint=False)
        self._salts = rng.integers(0, 2**64, parameters.tables, np.uint64, endpoint=False)

    def keys(self, points: Floats) -> NDArray[np.uint64]:
        """Return the buckets of points.

        Args:
            points: [points, dimension].

        Returns:
            A bucket's name for each point and table, [points, tables].
        """
        return self._folded(np.floor(self._hashed(points)))

    def probes(self, point: Floats) -> NDArray[np.uint64]:
        """Return the buckets to search for a point's neighbours, [tables * (hashes + 1)].

        Its own ones, and of each hash the neighbouring one whose boundary is nearer (multi-probe).
        """
        hashed = self._hashed(point[None])
        own = np.floor(hashed)
        nearer = np.where(hashed[0] - own[0] < 0.5, -self._factors, self._factors)
        keys = self._folded(own)[0]
        return np.concatenate([keys[:, None], keys[:, None] + nearer], axis=1).ravel()

    def _hashed(self, points: Floats) -> Floats:
        """Return the hashes [points, tables, hashes] before they are rounded down."""
        return np.tensordot(points, self._directions, 1) + self._offsets

    def _folded(self, hashes: Floats) -> NDArray[np.uint64]:
        with np.errstate(over="ignore"):
            folded = (hashes.astype(np.int64).view(np.uint64) * self._factors).sum(axis=2) + self._salts
        return np.asarray(folded, np.uint64)


def share_of_neighbours(distance: Floats, parameters: Parameters) -> Floats:
    """Compute the probability that a point at a distance is in one of the buckets of `Hashes.probes`.

    Let X be the distance times a normal variable, and S(c) = E[(c - |X|/w)+]. A hash is equal with
    probability S(1), and is the neighbouring one behind the nearer boundary, whose distance is uniform in
    [0, w/2], with S(3/2) - S(1) - S(1/2).
    """
    hashes = parameters.hashes
    ratio = parameters.width / np.maximum(distance, 1e-12 * parameters.width)
    equal = _shortfall(1.0, ratio)
    beyond = _shortfall(1.5, ratio) - equal - _shortfall(0.5, ratio)
    in_table = equal**hashes + (hashes * equal ** (hashes - 1) * beyond if hashes else 0.0)
    share: Floats = 1 - (1 - np.minimum(in_table, 1.0)) ** parameters.tables
    return share


def _shortfall(bound: float, ratio: Floats) -> Floats:
    """Compute E[(bound - |X|/w)+], where w is `ratio` standard deviations of X."""
    reach = bound * ratio
    density = (1 - np.exp(-(reach**2) / 2)) * np.sqrt(2 / np.pi)
    shortfall: Floats = bound * (2 * ndtr(reach) - 1) - density / ratio
    return shortfall
