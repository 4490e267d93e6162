"""Choice of index parameters from points: the fastest ones with sufficient recall."""

from itertools import product
from typing import Final

import numpy as np

from mistify_server.tuning.hashing import Floats, Parameters, share_of_neighbours

#: Number of points up to which an exhaustive search is fastest.
ALL_AT_ONCE: Final = 2_000

#: Required average share of nearest neighbours found.
RECALL: Final = 0.95

_NEIGHBOURS: Final = 10
_SAMPLES: Final = 64
_OTHERS: Final = 50_000
_BINS: Final = 256

_TABLES: Final = (1, 2, 3, 4, 6, 8, 12, 16)
_HASHES: Final = tuple(range(1, 25))
_WIDTHS: Final = tuple(2.0 ** (power / 2) for power in range(-2, 13))

#: Measured seconds to read a bucket and to rank a point; only their ratio matters.
_BUCKET_SECONDS: Final = 2e-6
_POINT_SECONDS: Final = 8e-8

#: Parameters for a single bucket with all points.
EXHAUSTIVE: Final = Parameters(tables=1, hashes=0, width=1.0)


def choose(points: Floats, rng: np.random.Generator) -> Parameters:
    """Choose parameters for points with this distribution and number.

    A sample of points is compared with all others. The distances determine how many nearest neighbours
    parameters would find, and how many other points they would rank (`share_of_neighbours`).

    Args:
        points: [points, dimension].
        rng: Draws the sample.
    """
    if len(points) <= ALL_AT_ONCE:
        return EXHAUSTIVE
    near, far, counts = _distances(points, rng)
    # If more than half of the points coincide with ten others, only the distant ones define a scale.
    scale = float(np.median(near)) or float(far[counts.cumsum() >= counts.sum() / 2][0])
    best, least = EXHAUSTIVE, _BUCKET_SECONDS + _POINT_SECONDS * len(points)
    for tables, hashes, width in product(_TABLES, _HASHES, _WIDTHS):
        parameters = Parameters(tables, hashes, width * scale)
        buckets = _BUCKET_SECONDS * tables * (hashes + 1)
        if buckets >= least or share_of_neighbours(near, parameters).mean() < RECALL:
            continue
        seconds = buckets + _POINT_SECONDS * float(counts @ share_of_neighbours(far, parameters))
        if seconds < least:
            best, least = parameters, seconds
    return best


def _distances(points: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Compute the distances of a sample of points to their nearest neighbours, and to all others.

    Returns:
        The distances to neighbours, [samples * neighbours], and a histogram with narrow bins at small
        distances: the centres of its bins, and the mean number of other points per point in each bin.
    """
    centred = points - points.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    others = rng.choice(len(points), min(len(points), _OTHERS), replace=False)
    near, far = [], []
    for sample in rng.choice(len(points), _SAMPLES, replace=False):
        distances = np.sqrt(np.maximum(squares - 2 * (centred @ centred[sample]) + squares[sample], 0))
        distances[sample] = 0
        nearest = np.sort(np.partition(distances, _NEIGHBOURS)[: _NEIGHBOURS + 1])
        near.append(nearest[1:])  # without the point itself
        far.append(distances[others])
    highest = np.max(far) or 1.0
    edges = np.concatenate([[0.0], np.geomspace(1e-4 * highest, 1.001 * highest, _BINS)])
    counts = np.histogram(far, edges)[0] * (len(points) / len(others) / _SAMPLES)
    return np.concatenate(near), (edges[:-1] + edges[1:]) / 2, np.asarray(counts, np.float64)
