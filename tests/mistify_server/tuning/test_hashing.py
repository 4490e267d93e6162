"""Locality-sensitive hashing: predicted and counted recall, and finding near points."""

import numpy as np
import pytest

from mistify_server.tuning.hashing import Hashes, Parameters, share_of_neighbours
from mistify_server.tuning.parameters import ALL_AT_ONCE, EXHAUSTIVE, RECALL, choose

DRAWS = 400


@pytest.mark.parametrize("distance", [0.2, 0.7, 1.5, 4.0])
@pytest.mark.parametrize("parameters", [Parameters(1, 1, 1.0), Parameters(1, 4, 2.0), Parameters(3, 3, 1.5)])
def test_the_recall_matches_the_prediction(parameters, distance):
    """Each sample draws new hashes and two points at the distance."""
    dimension, actual = 5, 0
    for seed in range(DRAWS):
        hashes = Hashes(parameters, dimension, seed)
        direction = np.random.default_rng([seed, 1]).normal(size=dimension)
        other = distance * direction / np.linalg.norm(direction)
        actual += bool(np.isin(hashes.keys(other[None])[0], hashes.probes(np.zeros(dimension))).any())
    expected = float(share_of_neighbours(np.array([distance]), parameters)[0])
    spread = np.sqrt(expected * (1 - expected) / DRAWS)
    assert abs(actual / DRAWS - expected) < 4 * spread + 1e-3


def test_a_point_is_in_the_searched_buckets():
    hashes = Hashes(Parameters(4, 6, 0.5), 3, seed=2)
    points = np.random.default_rng(0).normal(size=(200, 3))
    for point, keys in zip(points, hashes.keys(points), strict=True):
        assert np.isin(keys, hashes.probes(point)).all()


def test_probes_are_the_own_bucket_and_its_nearest_neighbours():
    """With integers, for points on either side of zero."""
    tables, count = 3, 4
    hashes = Hashes(Parameters(tables, count, 0.5), 3, seed=4)
    for point in np.random.default_rng(7).normal(scale=5, size=(50, 3)):
        hashed = np.einsum("d,dth->th", point, hashes._directions) + hashes._offsets
        expected = []
        for table in range(tables):
            own = [int(np.floor(value)) for value in hashed[table]]
            steps = [-1 if value % 1 < 0.5 else 1 for value in hashed[table]]
            moved = [[*own[:at], own[at] + steps[at], *own[at + 1 :]] for at in range(count)]
            factors, salt = hashes._factors[table].tolist(), int(hashes._salts[table])
            for bucket in [own, *moved]:
                name = salt + sum(map(int.__mul__, bucket, factors))
                expected.append((name + 2**63) % 2**64 - 2**63)
        assert hashes.probes(point).tolist() == expected


def test_equal_points_are_always_found_and_distant_ones_rarely():
    shares = share_of_neighbours(np.array([0.0, 1e-9, 1e9]), Parameters(2, 8, 1.0))
    assert shares[:2] == pytest.approx(1)
    assert shares[2] < 1e-6


def test_few_points_share_one_bucket():
    assert choose(np.zeros((ALL_AT_ONCE, 2)), np.random.default_rng(0)) == EXHAUSTIVE


def test_parameters_follow_the_scale_of_the_points():
    points = np.random.default_rng(1).normal(size=(5_000, 4))
    small = choose(points, np.random.default_rng(0))
    large = choose(points * 1e3, np.random.default_rng(0))
    assert (large.tables, large.hashes) == (small.tables, small.hashes)
    assert large.width == pytest.approx(small.width * 1e3)


def test_chosen_parameters_have_a_sufficient_predicted_recall():
    points = np.random.default_rng(1).normal(size=(5_000, 4))
    parameters = choose(points, np.random.default_rng(0))
    squares = ((points[:50, None] - points[None]) ** 2).sum(axis=2)
    near = np.sqrt(np.sort(squares, axis=1)[:, 1:11])
    assert share_of_neighbours(near, parameters).mean() > RECALL - 0.03
    assert parameters.hashes > 0


@pytest.mark.parametrize("kind", ["one place", "two places", "one stranger"])
def test_identical_points_get_parameters(kind):
    points = np.zeros((5_000, 2))
    if kind == "two places":
        points[::2] = 1.0
    if kind == "one stranger":
        points[0] = 1.0
    parameters = choose(points, np.random.default_rng(0))
    assert np.isfinite(parameters.width)
    assert parameters.width > 0
