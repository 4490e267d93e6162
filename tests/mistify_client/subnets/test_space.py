"""The subnets of a store: counting, enumeration and sampling."""

from collections import Counter

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.subnets.space import SubnetSpace
from tests.mistify_client.subnets.spaces import store, store_of, variant


def recurrence(blocks: int, shrunk: int, merged: tuple[int, ...]) -> int:
    counts = [1]
    for _ in range(blocks):
        before = [counts[-span] for span in merged if span <= len(counts)]
        counts.append((1 + shrunk) * counts[-1] + sum(before))
    return counts[-1]


@pytest.mark.parametrize(
    ("blocks", "shrunk", "merged", "count"),
    [(3, 2, (2, 3), 34), (16, 2, (2, 3), 258_371_689), (16, 0, (2, 3), 10_609), (33, 2, (2, 3), None)],
)
def test_the_number_of_subnets_follows_the_recurrence(blocks, shrunk, merged, count):
    space = SubnetSpace(store(blocks, shrunk, merged))
    assert space.count == recurrence(blocks, shrunk, merged)
    assert count in (None, space.count)


def test_every_subnet_is_a_network_and_listed_once():
    space = SubnetSpace(store(5, 1, (2, 3)))
    subnets = list(space)
    assert len(subnets) == len(set(subnets)) == space.count
    assert subnets[0] == space.original
    for subnet in subnets:
        assert space.store.network_of([one.file for one in subnet]) == subnet


def test_the_original_network_has_the_first_variant_at_each_position():
    space = SubnetSpace(store(3, 2, (2,)))
    assert [one.file for one in space.original] == ["block-0.tflite", "block-1.tflite", "block-2.tflite"]


def test_subnets_are_sampled_uniformly():
    space = SubnetSpace(store(3, 1, (2, 3)))
    rng = np.random.default_rng(0)
    drawn = Counter(space.random(rng) for _ in range(200 * space.count))
    assert len(drawn) == space.count
    counts = np.array(list(drawn.values()))
    assert ((counts - 200) ** 2 / 200).sum() < 2 * space.count  # chi squared


def test_a_variant_replaces_the_blocks_at_its_position():
    space = SubnetSpace(store(5, 1, (2, 3)))
    for subnet in space:
        for one in space.variants:
            changed = space.replaced(subnet, one)
            assert one in changed
            assert space.store.network_of([block.file for block in changed]) == changed
            kept = [block for block in subnet if block.end <= one.start or block.start >= one.end]
            assert set(kept) <= set(changed)
            assert set(changed) <= {*kept, one, *space.original}


def test_variants_in_dead_ends_are_in_no_subnet():
    dead_end = variant("dead-end", 0, 2)
    space = SubnetSpace(store_of([dead_end, variant("a", 0, 1), variant("b", 1, 2)]))
    assert dead_end not in space.variants
    assert space.count == 1
    assert len(list(space)) == 1


def test_a_store_without_a_network_is_refused():
    with pytest.raises(MistifyError, match="form no network") as caught:
        SubnetSpace(store_of([variant("a", 0, 1), variant("b", 2, 1)]))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
