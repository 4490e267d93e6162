"""Which subnets the training of paths draws."""

import numpy as np

from executors.algorithms.adaptivenet.sampling import PathSampler
from executors.algorithms.adaptivenet.space import SupernetSpace, VariantSpan

#: Six blocks; each but the first and the last may be replaced by a half, and two in a row by one.
BLOCKS = 6
SPACE = SupernetSpace(
    (
        *(VariantSpan(f"block-{n}", n, 1) for n in range(BLOCKS)),
        *(VariantSpan(f"half-{n}", n, 1) for n in range(1, BLOCKS - 1)),
        *(VariantSpan(f"one-{n}", n, 2) for n in range(1, BLOCKS - 2)),
    ),
    BLOCKS,
)
COSTS = [1.0] * BLOCKS + [0.5] * 4 + [1.0] * 3
#: Halves lose more, the later they stand; one in place of two loses most.
LOSSES = [0.0] * BLOCKS + [0.01, 0.05, 0.2, 0.8] + [3.0] * 3


def drawn(count=2_000):
    sampler, rng = PathSampler(SPACE, COSTS, LOSSES), np.random.default_rng(0)
    return [sampler.draw(rng) for _ in range(count)]


def cost(subnet):
    return sum(COSTS[number] for number in subnet)


def test_subnets_of_all_costs_are_drawn_and_never_the_network_itself():
    subnets = drawn()
    assert SPACE.original not in subnets
    counts = np.unique([cost(subnet) for subnet in subnets], return_counts=True)
    assert set(counts[0]) >= {4.0, 4.5, 5.0, 5.5}
    assert counts[1].min() > 20


def test_what_loses_little_is_drawn_most():
    subnets = [subnet for subnet in drawn() if cost(subnet) == 5.5]
    uses = [sum(number in subnet for subnet in subnets) for number in range(BLOCKS, BLOCKS + 4)]
    assert uses == sorted(uses, reverse=True)
    assert uses[0] > 3 * uses[2]


def test_what_loses_most_is_drawn_as_well():
    """A variant that nothing is known of but a bad score still learns."""
    subnets = drawn()
    for number in range(BLOCKS, len(SPACE.places)):
        assert sum(number in subnet for subnet in subnets) > 20
