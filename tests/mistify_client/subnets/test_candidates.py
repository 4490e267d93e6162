"""Candidates: what of them goes into a pool."""

import numpy as np
import pytest

from mistify_client.subnets.candidates import Candidate, Score, best_entries
from tests.mistify_client.subnets.spaces import known


def test_no_other_candidate_is_as_fast_and_as_accurate():
    own = known(4)
    rng = np.random.default_rng(0)
    candidates = [
        Candidate(subnet, float(rng.integers(1, 30)), Score(float(rng.integers(20)) / 20, 0.0))
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
        (Score(0.8, 1.0), Score(0.8, 0.9), 2),
        (Score(0.8, 1.0), Score(0.8, 1.1), 1),
        (Score(0.8, 1.0), Score(0.79, 0.9), 2),
        (Score(0.8, 1.0), Score(0.82, 1.1), 1),
        (Score(0.0, 5.0), Score(0.0, 4.0), 2),
    ],
)
def test_a_tenth_of_loss_counts_as_five_points_of_accuracy(faster, slower, kept):
    """The slower one is only kept if it is worth more; networks without classes have a loss alone."""
    first, second, *_ = known(4).space
    assert len(best_entries([Candidate(first, 1.0, faster), Candidate(second, 2.0, slower)])) == kept
