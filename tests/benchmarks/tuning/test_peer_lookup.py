"""The benchmark of peer lookups on small fleets."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")
pytest.importorskip("hnswlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.tuning.peer_lookup import COUNT, KINDS, Fleet, Outcome, brute_force, hnsw, outcome
from benchmarks.tuning.peer_lookup import _figures as figures_of


@pytest.fixture(params=KINDS)
def fleet(request):
    return Fleet.of(request.param, 400)


def test_brute_force_and_hnsw_find_the_nearest(fleet):
    assert fleet.recall(brute_force(fleet.points)) == pytest.approx(1, abs=0.001)
    assert fleet.recall(hnsw(fleet.points)) > 0.95


def test_recall_is_the_share_of_found_peers(fleet):
    def half(query):
        squares = ((fleet.points - query) ** 2).sum(axis=1)
        return [*np.argsort(squares)[: COUNT // 2].tolist(), *([-1] * (COUNT // 2))]

    assert fleet.recall(half) == pytest.approx(0.5)


def test_an_outcome_has_both_sides(fleet):
    result = outcome(fleet)
    assert result.recall == result.brute_recall == result.hnsw_recall == 1
    assert min(result) > 0


def test_targets_are_judged_by_the_worse_kind():
    def outcome_of(lookup, times, recall):
        return Outcome(lookup, 1.0, times, recall, 1.0, 1.0, 1.0, 0.5, 2 * lookup, 1.0)

    figures = figures_of({
        "flat": {10_000: outcome_of(1.0, 1, 0.99), 1_000_000: outcome_of(1.0, 50, 0.95)},
        "steep": {10_000: outcome_of(1.0, 1, 0.98), 1_000_000: outcome_of(10.0, 30, 0.97)},
        "short": {10_000: outcome_of(1.0, 1, 0.99), 100_000: outcome_of(1.0, 4, 0.99)},
    })  # fmt: skip
    assert figures["recall_at_10"] == 0.95
    assert figures["times_faster_1000000"] == 30
    assert figures["times_faster_100000"] == 4
    assert figures["growth_exponent"] == pytest.approx(0.5)
    assert figures["over_hnswlib_1000000"] == 20
    assert figures["over_hnswlib_100000"] == 2
