"""Locality-sensitive hashes, which put nearby points into the same buckets (p-stable LSH, Datar et al. 2004).

A hash is h(v) = floor((a.v + b) / w) with normally distributed a. The normal distribution is 2-stable: a.v -
a.u is distributed like |v - u| times a normal variable. The key of a bucket in a table consists of k hashes;
two points collide if they share a bucket in one of L tables.
"""

from dataclasses import dataclass
from math import erf
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Keys of buckets; overflow makes sums modulo 2^64.
Keys = NDArray[np.int64]

#: The error function; that of SciPy takes half a second and 14 MB in every server.
_erf: Final = np.vectorize(erf, otypes=[np.float64])

#: Size of a bucket's key in bytes.
KEY_BYTES: Final = 8


@dataclass(frozen=True)
class Parameters:
    """Parameters of an index.

    Attributes:
        tables: The number of tables, L; a point has one bucket per table.
        hashes: The number of hashes per key, k; with 0, all points share one bucket.
        width: The width w of a hash, in the unit of the points.
    """

    tables: int
    hashes: int
    width: float


class Hashes:
    """The hashes of all tables, drawn from a seed.

    As in Datar et al., the k hashes of a bucket are combined into one key by a random linear combination
    modulo 2^64, so the key of a neighbouring bucket is one addition away. If two buckets happen to have the
    same key, a few more distances are computed, but no neighbour is lost.
    """

    def __init__(self, parameters: Parameters, dimension: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shape = parameters.tables, parameters.hashes
        self._directions = rng.standard_normal((dimension, *shape)) / parameters.width
        self._offsets = rng.random(shape)
        low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        self._factors = rng.integers(low, high, shape, np.int64, endpoint=True)
        self._salts = rng.integers(low, high, parameters.tables, np.int64, endpoint=True)
        # For `probes`, per table: the hashes rounded down, and the hashes rounded to the nearest integer.
        both = np.concatenate([self._directions, self._directions], axis=2)
        self._both_directions = both.reshape(dimension, -1)
        self._both_offsets = np.concatenate([self._offsets, self._offsets + 0.5], axis=1).ravel()
        self._probing, self._probing_salts = self._probe_factors()

    def keys(self, points: Floats) -> Keys:
        """Return the buckets of points.

        Args:
            points: [points, dimension].

        Returns:
            The key of each point's bucket in each table, [points, tables].
        """
        hashes = np.floor(np.tensordot(points, self._directions, 1) + self._offsets).astype(np.int64)
        return np.asarray((hashes * self._factors).sum(axis=2) + self._salts, np.int64)

    def probes(self, point: Floats) -> Keys:
        """Return the buckets to search for a point's neighbours, [tables * (hashes + 1)].

        These are its own buckets and, for each hash, the neighbouring bucket with the nearer boundary
        (multi-probe).
        """
        both = np.floor(point @ self._both_directions + self._both_offsets).astype(np.int64)
        names = both.reshape(len(self._probing), 1, -1) @ self._probing + self._probing_salts
        return np.asarray(names.ravel(), np.int64)

    def _probe_factors(self) -> tuple[Keys, Keys]:
        """Return factors [tables, 2 * hashes, hashes + 1] and salts [tables, 1, hashes + 1] of `probes`.

        Let d be a hash rounded down and r the hash rounded to the nearest integer, which is d if the lower
        boundary is nearer, else d + 1. The nearer neighbour is 2r - d - 1 (d - 1 or d + 1). This is linear in
        both, so the keys of all buckets to search are a single matrix product.
        """
        tables, hashes = self._factors.shape
        factors = np.zeros((tables, 2, hashes, hashes + 1), np.int64)
        factors[:, 0] = self._factors[:, :, None]
        salts = np.repeat(self._salts[:, None, None], hashes + 1, axis=2)
        for number in range(hashes):
            factors[:, 0, number, number + 1] -= 2 * self._factors[:, number]
            factors[:, 1, number, number + 1] = 2 * self._factors[:, number]
            salts[:, 0, number + 1] -= self._factors[:, number]
        return factors.reshape(tables, 2 * hashes, hashes + 1), salts


def share_of_neighbours(distance: Floats, parameters: Parameters) -> Floats:
    """Compute the probability that a point at a given distance is in one of the buckets of `Hashes.probes`.

    Let X be the distance times a normal variable, and S(c) = E[(c - |X|/w)+]. A hash is equal with
    probability S(1). It is the neighbour beyond the nearer boundary, at a distance uniform in [0, w/2], with
    probability S(3/2) - S(1) - S(1/2).
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
    shortfall: Floats = bound * _erf(reach / np.sqrt(2)) - density / ratio
    return shortfall
