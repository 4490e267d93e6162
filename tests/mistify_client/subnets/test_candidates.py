"""Candidates: what of them goes into a pool."""

import numpy as np

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
