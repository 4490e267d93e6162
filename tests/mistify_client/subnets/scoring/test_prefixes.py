"""Trees of subnets: shared prefixes, and how many a memory limit allows."""

import numpy as np
import pytest

from mistify_client.subnets.scoring.prefixes import tree_of
from tests.mistify_client.subnets.spaces import known

NO_LIMIT = 1 << 40


def subnets_of(own, count, seed=0):
    rng = np.random.default_rng(seed)
    return list({own.space.random(rng): None for _ in range(count)})


def paths(node, blocks=(), kept=()):
    """Yield each subnet of a tree with its number, blocks, and the positions of kept features."""
    blocks += node.blocks
    if node.subnet is not None:
        yield node.subnet, blocks, kept
    for each in node.children:
        yield from paths(each, blocks, (*kept, blocks[-1].end) if blocks else kept)


def sizes(own, size=lambda position: 100):
    return {position: size(position) for position in range(own.space.store.last + 1)}


@pytest.mark.parametrize("limit", [0, 100, 250, NO_LIMIT])
def test_every_subnet_occurs_once_in_the_tree(limit):
    own = known(8)
    subnets = subnets_of(own, 100)
    found = sorted(paths(tree_of(subnets, own.table, sizes(own), limit)))
    assert [(number, blocks) for number, blocks, _ in found] == list(enumerate(subnets))


def test_no_prefix_runs_twice_without_a_memory_limit():
    own = known(8)
    subnets = subnets_of(own, 100)
    tree = tree_of(subnets, own.table, sizes(own), NO_LIMIT)
    prefixes = {subnet[: length + 1] for subnet in subnets for length in range(len(subnet))}
    assert len(list(tree.runs())) == len(prefixes) < sum(map(len, subnets))


def test_no_prefixes_are_shared_without_memory():
    own = known(8)
    subnets = subnets_of(own, 100)
    runs = list(tree_of(subnets, own.table, sizes(own), 0).runs())
    assert len(runs) == sum(map(len, subnets))


@pytest.mark.parametrize("limit", [1, 3, 5, 8])
def test_the_features_kept_for_each_subnet_respect_the_limit(limit):
    """A feature takes as many bytes as the number of positions before it."""
    own = known(8)
    tree = tree_of(subnets_of(own, 200), own.table, sizes(own, lambda position: position), limit)
    kept = [sum(positions) for _, _, positions in paths(tree)]
    assert 0 < max(kept) <= limit


def test_more_memory_saves_more_time():
    own = known(8)
    subnets = subnets_of(own, 200)
    runs = [len(list(tree_of(subnets, own.table, sizes(own), 100 * depth).runs())) for depth in range(5)]
    assert runs == sorted(runs, reverse=True)
    assert runs[-1] < runs[0]


def test_the_prefix_that_saves_more_time_is_kept():
    """Three blocks and their shrunk variants: two subnets share two blocks, and four share the first."""
    own = known(3, shrunk=1, merged=())
    a, b, c = own.space.original
    small_b, small_c = (own.space.starting_at(position)[1] for position in (1, 2))
    subnets = [(a, b, c), (a, b, small_c), (a, small_b, c), (a, small_b, small_c)]

    def kept(latency_ms):
        own.table.latencies_ms.update({a.content.sha256: 1.0, b.content.sha256: latency_ms})
        own.table.latencies_ms[small_b.content.sha256] = 0.1
        return {number: at for number, _, at in paths(tree_of(subnets, own.table, sizes(own), 100))}

    # Four times 1 ms, compared with twice the 1.9 or 2.1 ms of both blocks.
    assert kept(0.9) == {0: (1,), 1: (1,), 2: (1,), 3: (1,)}
    # The other two subnets then keep their common prefix, although it saves little.
    assert kept(1.1) == {0: (2,), 1: (2,), 2: (2,), 3: (2,)}
