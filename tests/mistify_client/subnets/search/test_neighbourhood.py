"""Subnets near a budget: sampling, mutation and crossover."""

from collections import Counter

import numpy as np
import pytest

from mistify_client.subnets.search.neighbourhood import NearbyMoves
from tests.mistify_client.subnets.spaces import known


def moves(own, share, band=0.05, seed=0):
    return NearbyMoves(own.space, own.table, share * own.original_ms, np.random.default_rng(seed), band)


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8])
def test_all_moves_in_a_large_space_stay_in_the_band(share):
    own = known(16)
    near = moves(own, share)
    budget = share * own.original_ms
    assert (near.low_ms, near.high_ms) == pytest.approx((0.95 * budget, 1.05 * budget))
    first = near.initial(50)
    assert len(set(first)) == 50
    changed = [near.mutated(subnet) for subnet in first]
    children = [near.crossed(one, other) for one, other in zip(first, changed, strict=True)]
    for subnet in (*first, *changed, *children):
        assert near.low_ms <= own.table.latency_ms(subnet) <= near.high_ms
        assert own.space.store.network_of([block.file for block in subnet]) == subnet
    assert all(new != old for new, old in zip(changed, first, strict=True))


def test_exactly_the_subnets_of_the_band_are_sampled():
    own = known(4)
    near = moves(own, 0.6, band=0.1)
    inside = {one for one in own.space if near.low_ms <= own.table.latency_ms(one) <= near.high_ms}
    assert 5 < len(inside) < own.space.count
    assert set(near.initial(1000)) == inside


def test_subnets_of_the_band_are_sampled_uniformly():
    own = known(4)
    near = moves(own, 0.6, band=0.1)
    inside = len(near.initial(1000))
    drawn = Counter(near.initial(1)[0] for _ in range(100 * inside))
    counts = np.array(list(drawn.values()))
    assert ((counts - 100) ** 2 / 100).sum() < 2 * inside  # chi squared


@pytest.mark.parametrize("share", [0.01, 0.97, 5.0])
def test_an_empty_band_is_widened_until_it_contains_a_subnet(share):
    own = known(2, shrunk=1, merged=())
    near = moves(own, share, band=0.001)
    (first, *_) = near.initial(3)
    assert near.low_ms <= own.table.latency_ms(first) <= near.high_ms
    latencies = [own.table.latency_ms(one) for one in own.space]
    nearest = min(abs(latency - share * own.original_ms) for latency in latencies)
    assert near.high_ms - near.low_ms <= max(4 * nearest, 0.002 * share * own.original_ms * 1.001)


def test_a_mutation_out_of_the_band_is_repaired_with_the_best_other_block():
    """A mutation replaces one of four blocks; shrinking a block saves as much as restoring another costs."""
    own = known(4, shrunk=1, merged=())
    latencies = own.table.latencies_ms
    for one in own.space.variants:
        latencies[one.content.sha256] = 2.0 if one in own.space.original else 1.0
    near = NearbyMoves(own.space, own.table, 6.0, np.random.default_rng(0), 0.05)
    (subnet, *_) = near.initial(6)
    assert own.table.latency_ms(subnet) == 6.0
    for _ in range(20):
        changed = near.mutated(subnet)
        assert own.table.latency_ms(changed) == 6.0
        assert sum(one not in subnet for one in changed) == 2


def test_moves_are_reproducible_by_seed():
    own = known(8)
    one, other = (moves(own, 0.6, seed=3) for _ in range(2))
    assert one.initial(10) == other.initial(10)
    subnet = own.space.original
    assert [one.mutated(subnet) for _ in range(5)] == [other.mutated(subnet) for _ in range(5)]
