"""Sampling of subnets for the training of paths."""

import numpy as np

from executors.algorithms.adaptivenet.sampling import PathSampler
from executors.algorithms.adaptivenet.space import SupernetSpace, VariantSpan

#: Six blocks; each except the first and last can be shrunk by half, and two in a row can be merged.
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
#: Later shrunk blocks lose more; merged blocks lose most.
LOSSES = [0.0] * BLOCKS + [0.01, 0.05, 0.2, 0.8] + [3.0] * 3


def drawn(count=2_000):
    sampler, rng = PathSampler(SPACE, COSTS, LOSSES), np.random.default_rng(0)
    return [sampler.draw(rng) for _ in range(count)]


def cost(subnet):
    return sum(COSTS[number] for number in subnet)


def test_subnets_of_all_costs_are_sampled_but_never_the_original_network():
    subnets = drawn()
    assert SPACE.original not in subnets
    counts = np.unique([cost(subnet) for subnet in subnets], return_counts=True)
    assert set(counts[0]) >= {4.0, 4.5, 5.0, 5.5}
    assert counts[1].min() > 20


def test_subnets_with_a_low_loss_are_sampled_most():
    subnets = [subnet for subnet in drawn() if cost(subnet) == 5.5]
    uses = [sum(number in subnet for subnet in subnets) for number in range(BLOCKS, BLOCKS + 4)]
    assert uses == sorted(uses, reverse=True)
    assert uses[0] > 3 * uses[2]


def test_subnets_with_a_high_loss_are_sampled_as_well():
    """A variant with a bad initial score still gets trained."""
    subnets = drawn()
    for number in range(BLOCKS, len(SPACE.places)):
        assert sum(number in subnet for subnet in subnets) > 20


def every_subnet(position=0):
    if position == BLOCKS:
        yield ()
    for number in SPACE.starting.get(position, ()):
        for rest in every_subnet(SPACE.places[number].end):
            yield (number, *rest)


def test_goals_may_need_the_variants_of_the_best_subnets():
    """Compared with brute force over all limits. No merged block is worth its loss."""
    subnets = sorted(every_subnet(), key=lambda subnet: sum(LOSSES[number] for number in subnet))
    best = {next(s for s in subnets if cost(s) <= limit) for limit in (4.0, 4.5, 5.0, 5.5)}
    needed = PathSampler(SPACE, COSTS, LOSSES).needed(np.random.default_rng(0))
    assert needed == sorted({number for subnet in best for number in subnet if number >= BLOCKS})
    assert needed == [6, 7, 8, 9]


def test_the_cheapest_subnet_remains():
    """Although none of 40 equal variants is drawn often."""
    assert len(needed_of(0.5)) == 1


def test_all_variants_remain_if_none_is_cheaper():
    assert needed_of(1.0) == list(range(3, 43))


def needed_of(cost_of_variant):
    """Return the variants needed of 40 equal ones of a single block."""
    variants = [VariantSpan(f"variant-{n}", 1, 1) for n in range(40)]
    space = SupernetSpace((*SPACE.places[:3], *variants), 3)
    sampler = PathSampler(space, [1.0] * 3 + [cost_of_variant] * 40, [0.0] * 3 + [0.1] * 40)
    return sampler.needed(np.random.default_rng(0))
