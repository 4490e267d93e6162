"""Pools of subnets: the choice under load, and storage."""

import pytest

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import PART
from mistify.package.blocks import BLOCKS
from mistify.package.opened import Package
from mistify_client.assembly.pool import POOL, PoolEntry, SubnetPool
from tests.mistify_client.pools import make_block_package


@pytest.fixture
def store(tmp_path):
    """Return a package with a block store, with arbitrary content."""
    return make_block_package(tmp_path / "package")


def entry(latency_ms, accuracy):
    return PoolEntry(files=(f"{latency_ms}.tflite",), latency_ms=latency_ms, accuracy=accuracy)


def pool(store, **changes):
    entries = (entry(1.0, 0.5), entry(2.0, 0.7), entry(4.0, 0.9))
    fields = {
        "store": Package.open(store).blocks_digest,
        "budget_ms": 4.0,
        "original_ms": 5.0,
        "metric": Metric.AGREEMENT,
        "examples": 10,
        "data": "mine.npz",
        "strategy": "additive",
        "entries": entries,
    }
    return SubnetPool(**fields | changes)


@pytest.mark.parametrize(
    ("ratio", "expected"), [(0.5, 0.9), (1.0, 0.9), (1.01, 0.7), (2.0, 0.7), (3.9, 0.5), (4.0, 0.5)]
)
def test_the_best_subnet_under_load_is_the_most_accurate_one_within_the_budget(store, ratio, expected):
    assert pool(store).best(ratio).accuracy == expected


def test_no_subnet_fits_under_too_high_a_load(store):
    assert pool(store).best(4.1) is None


def test_a_pool_survives_a_round_trip(store):
    saved = pool(store)
    saved.save(store)
    assert SubnetPool.load(store, Package.open(store)) == saved
    assert not list(store.glob(f"*{PART}"))


def test_a_pool_of_another_store_is_ignored(store):
    pool(store).save(store)
    (store / BLOCKS).write_text("another store")
    assert SubnetPool.load(store, Package.open(store)) is None


def test_a_missing_pool_is_not_an_error(store):
    assert SubnetPool.load(store, Package.open(store)) is None
    assert SubnetPool.load(store / "nowhere", Package.open(store)) is None


@pytest.mark.parametrize(
    "content",
    ["", "{}", '{"format_version": 1}', '{"format_version": 1, "entries": [5]}', '{"format_version": 2}'],
)
def test_the_error_of_an_unreadable_pool_names_it(store, content):
    (store / POOL).write_text(content)
    with pytest.raises(MistifyError, match="remove it, or replace it with mistify adapt") as caught:
        SubnetPool.load(store, Package.open(store))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert caught.value.problems[0].place == str(store / POOL)
