"""Pools: what is kept of candidates, and what is chosen under load."""

import numpy as np
import pytest

from mistify.config.metric import Metric
from mistify.files import PART
from mistify.package.blocks import BLOCKS
from mistify_client.assembly.executions import Execution
from mistify_client.subnets.candidates import Candidate, Score
from mistify_client.subnets.pool import POOL, PoolEntry, SubnetPool, best_entries, store_digest
from tests.mistify_client.subnets.spaces import known


@pytest.fixture
def store(tmp_path):
    (tmp_path / BLOCKS).write_text("a store")
    return tmp_path


def entry(latency_ms, accuracy):
    return PoolEntry(files=(f"{latency_ms}.tflite",), latency_ms=latency_ms, accuracy=accuracy)


def pool(store, **changes):
    entries = (entry(1.0, 0.5), entry(2.0, 0.7), entry(4.0, 0.9))
    fields = {
        "store": store_digest(store),
        "budget_ms": 4.0,
        "original": entry(5.0, 0.85),
        "metric": Metric.AGREEMENT,
        "examples": 10,
        "execution": Execution.INTERPRETER,
        "threads": 1,
        "entries": entries,
    }
    return SubnetPool(**fields | changes)


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
    ("ratio", "expected"), [(0.5, 0.9), (1.0, 0.9), (1.01, 0.7), (2.0, 0.7), (3.9, 0.5), (4.0, 0.5)]
)
def test_the_best_under_load_is_the_most_accurate_that_still_fits(store, ratio, expected):
    assert pool(store).best(ratio).accuracy == expected


def test_none_fits_where_the_load_is_too_high(store):
    assert pool(store).best(4.1) is None


def test_what_is_written_is_read_back(store):
    saved = pool(store)
    saved.save(store)
    assert SubnetPool.load(store, store) == saved
    assert not list(store.glob(f"*{PART}"))


def test_a_pool_of_another_store_does_not_count(store):
    pool(store).save(store)
    (store / BLOCKS).write_text("another store")
    assert SubnetPool.load(store, store) is None


@pytest.mark.parametrize("content", [None, "", "{}", '{"format_version": 2}'])
def test_where_none_can_be_read_there_is_none(store, content):
    if content is not None:
        (store / POOL).write_text(content)
    assert SubnetPool.load(store, store) is None
