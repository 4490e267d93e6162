"""The cache of blocks, which limits memory."""

from functools import cache

import numpy as np
import pytest

from mistify_client.subnets.scoring.block_cache import BlockCache
from tests.mistify_client.subnets.spaces import variant

SIX = [variant(name, 0, 1) for name in "abcdef"]


class Counted:
    """A block that counts how often it is loaded."""

    def __init__(self, one):
        self.variant = one


def least_loads(runs, room):
    """Return the minimum number of loads for a sequence by brute force over all evictions."""

    @cache
    def least(place, held):
        if place == len(runs):
            return 0
        if runs[place] in held:
            return least(place + 1, held)
        smaller = [held] if len(held) < room else [held - {one} for one in held]
        return 1 + min(least(place + 1, each | {runs[place]}) for each in smaller)

    return least(0, frozenset())


@pytest.mark.parametrize("room", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(4))
def test_no_other_eviction_order_needs_fewer_loads(room, seed):
    """Over two rounds; the reference does not know that a third round would follow."""
    rng = np.random.default_rng(seed)
    once = [SIX[number] for number in rng.integers(6, size=9)]
    blocks = BlockCache(Counted, lambda one: 10, 10 * room, once)
    for _ in range(2):
        assert [blocks.next(one).variant for one in once] == once
    least = least_loads([one.file for one in 2 * once], room)
    assert least <= blocks.loads <= least + room


def test_the_cache_respects_its_memory_limit():
    sizes = dict(zip(SIX, (5, 10, 15, 20, 25, 60), strict=True))
    rng = np.random.default_rng(0)
    once = [SIX[number] for number in rng.integers(6, size=40)]
    blocks = BlockCache(Counted, sizes.get, 50, once)
    for one in once:
        blocks.next(one)
        held = sum(sizes[each] for each in blocks._cached)
        assert held <= 50 or set(blocks._cached) == {one}


def test_each_block_is_loaded_once_if_memory_suffices():
    blocks = BlockCache(Counted, lambda one: 10, 60, SIX)
    for _ in range(3):
        for one in SIX:
            blocks.next(one)
    assert blocks.loads == 6
