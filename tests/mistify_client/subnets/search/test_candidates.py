"""Selection of candidates for the pool."""

import numpy as np
import pytest

from mistify_client.subnets.search.candidates import Candidate, SubnetScore, best_entries
from tests.mistify_client.subnets.spaces import known


def test_the_pool_has_the_candidates_that_no_other_dominates():
    own = known(4)
    rng = np.random.default_rng(0)
    candidates = [
        Candidate(subnet, float(rng.integers(1, 30)), SubnetScore(float(rng.integers(20)) / 20, 0.0))
        for subnet in own.space
    ]
    points = {(one.latency_ms, one.score.accuracy) for one in candidates}
    expected = sorted(
        point
        for point in points
        if not any(other != point and other[0] <= point[0] and other[1] >= point[1] for other in points)
    )
    entries = best_entries(candidates)
    assert [(one.latency_ms, one.accuracy) for one in entries] == expected
    by_files = {tuple(block.file for block in one.subnet): one for one in candidates}
    for one in entries:
        assert by_files[one.files].latency_ms == one.latency_ms


@pytest.mark.parametrize(
    ("faster", "slower", "kept"),
    [
        (SubnetScore(0.8, 1.0), SubnetScore(0.8, 0.9), 2),
        (SubnetScore(0.8, 1.0), SubnetScore(0.8, 1.1), 1),
        (SubnetScore(0.8, 1.0), SubnetScore(0.79, 0.9), 1),
        (SubnetScore(0.8, 1.0), SubnetScore(0.82, 1.1), 1),
        (SubnetScore(0.0, 5.0), SubnetScore(0.0, 4.0), 2),
    ],
)
def test_a_loss_of_0_1_counts_as_much_as_five_points_of_accuracy(faster, slower, kept):
    """The slower one is kept if it scores higher and is as accurate; regression has only a loss."""
    first, second, *_ = known(4).space
    assert len(best_entries([Candidate(first, 1.0, faster), Candidate(second, 2.0, slower)])) == kept


def test_no_entry_is_slower_and_less_accurate_than_another_or_than_the_original():
    rng = np.random.default_rng(1)
    space = list(known(4).space)
    for _ in range(200):
        candidates = [
            Candidate(
                subnet, float(rng.integers(1, 9)), SubnetScore(float(rng.uniform()), float(rng.uniform(0, 5)))
            )
            for subnet in space[: rng.integers(1, 9)]
        ]
        original = candidates[0]
        entries = best_entries(candidates, original=original)
        assert entries
        for entry in entries:
            for other in (*entries, original.entry()):
                faster = other.latency_ms < entry.latency_ms
                assert not (faster and other.accuracy > entry.accuracy)
        scores = [entry.score for entry in entries]
        assert scores == sorted(set(scores)), "the last entry within a latency is the best"


def test_entries_contain_the_values_that_rank_them():
    subnet, *_ = known(4).space
    (entry,) = best_entries([Candidate(subnet, 1.0, SubnetScore(0.8, 0.4))])
    assert (entry.accuracy, entry.loss, entry.score) == (0.8, 0.4, pytest.approx(0.6))
