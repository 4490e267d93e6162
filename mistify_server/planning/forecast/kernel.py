"""The kernel of the Gaussian process that predicts accuracy losses of edges.

An edge i that halves the source's multiply-adds h_i times in n_i training steps has a relative loss y_i:

    y_i = b_i r_i + e_i        b_i = max(h_i, 0) (1,000 / n_i)^0.2

The loss rate r_i is the loss per halving in 1,000 steps, and the noise e_i the variation between seeds. Rates
are normally distributed around the rate in the algorithm's profile. The more two edges have in common, the
stronger their correlation:

    cov(r_i, r_j) = [g_i = g_j] (s^2 + sum_c s_c^2 [c_i = c_j]) (a + (1 - a) exp(-|(x_i - x_j) / l|^2 / 2))
    k(i, j)       = b_i b_j cov(r_i, r_j)
    var(e_i)      = t^2 + (u b_i)^2

where c are labels (kind of network, model and data, algorithm, and pairs of these), x describes an edge's
reduction and steps, and g is a group: edges of different groups are independent.
"""

from collections.abc import Mapping
from math import log10
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.int64]

#: Number of steps for which profiles state rates, and the exponent by which rates fall with more steps.
_USUAL_STEPS: Final = 1_000
_FALL: Final = 0.2

#: s and s_c: standard deviations of the rate, common to all edges and per label.
_SPREAD: Final = 0.01
SPREADS: Final[Mapping[tuple[str, ...], float]] = {
    ("kind",): 0.01,
    ("subject",): 0.022,
    ("algorithm",): 0.004,
    ("kind", "algorithm"): 0.004,
    ("subject", "algorithm"): 0.008,
}

#: a: Part of the covariance of rates that does not depend on the edges' positions.
_CONSTANT: Final = 0.6

#: l: Length scales for halvings from the source, halvings from the parent, and log10 of the steps.
_LENGTHS: Final = np.array([1.5, 1.5, 0.7])

#: t and u: standard deviations of the losses of similar edges. Seeds differ by about half a percentage point.
NOISE: Final = 0.005
_NOISE_PER_HALVING: Final = 0.003


class Features(NamedTuple):
    """Numeric features of edges.

    Attributes:
        weighted_halvings: The b of each edge, [edges].
        mean: Losses at the mean rates of the edges' algorithms, [edges].
        positions: The x of each edge, [edges, 3].
        labels: The labels c: name of a label -> [edges], with equal numbers for edges that share its value.
        groups: The group g of each edge, [edges].
    """

    weighted_halvings: Floats
    mean: Floats
    positions: Floats
    labels: Mapping[tuple[str, ...], Codes]
    groups: Codes


def weighted_halvings(halvings: float, steps: int) -> float:
    """Return b: the halvings of an edge, weighted by its training steps."""
    return float(max(halvings, 0.0) * (_USUAL_STEPS / max(steps, 1)) ** _FALL)


def position(halvings: float, distance: float, steps: int) -> list[float]:
    """Return x: halvings from the source, halvings from the parent, and the logarithm of the steps."""
    return [halvings, distance, log10(max(steps, 1))]


def noise(edges: Features) -> Floats:
    """Return var(e), [edges]."""
    variances: Floats = NOISE**2 + (_NOISE_PER_HALVING * edges.weighted_halvings) ** 2
    return variances


def variance(edges: Features) -> Floats:
    """Return k(i, i), [edges]."""
    spread = _SPREAD**2 + sum(spread**2 for spread in SPREADS.values())
    variances: Floats = edges.weighted_halvings**2 * spread
    return variances


def covariance(left: Features, right: Features) -> Floats:
    """Return k(i, j), [left, right]."""
    offsets = (left.positions[:, None] - right.positions[None]) / _LENGTHS
    nearness = _CONSTANT + (1 - _CONSTANT) * np.exp(-0.5 * (offsets**2).sum(axis=-1))
    shared = np.full(nearness.shape, _SPREAD**2)
    for names, spread in SPREADS.items():
        shared += spread**2 * (left.labels[names][:, None] == right.labels[names][None])
    nearness *= left.groups[:, None] == right.groups[None]
    covariances: Floats = np.outer(left.weighted_halvings, right.weighted_halvings) * shared * nearness
    return covariances
