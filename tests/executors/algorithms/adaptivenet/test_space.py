"""The subnets of a space, compared with a full enumeration."""

from itertools import chain, combinations

import numpy as np
import pytest

from executors.algorithms.adaptivenet.space import SupernetSpace, VariantSpan

LIMITED = "flops", "params"


def space_of(blocks, extra):
    originals = (VariantSpan(f"block-{n}", n, 1) for n in range(blocks))
    return SupernetSpace(
        (*originals, *(VariantSpan(f"{s}+{span}-{n}", s, span) for n, (s, span) in enumerate(extra))), blocks
    )


@pytest.fixture
def space():
    return space_of(6, [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 1)])


def listed(space):
    """List every subnet: all sets of variants that cover each position once."""
    numbers = range(len(space.places))
    for chosen in chain.from_iterable(combinations(numbers, count) for count in range(1, space.blocks + 1)):
        ordered = sorted(chosen, key=lambda number: space.places[number].start)
        covered = [at for n in ordered for at in range(space.places[n].start, space.places[n].end)]
        if covered == list(range(space.blocks)):
            yield tuple(ordered)


def figures(space, seed):
    rng = np.random.default_rng(seed)
    count = len(space.places)
    costs = [dict(zip(LIMITED, row, strict=True)) for row in rng.uniform(1, 9, (count, 2))]
    return costs, rng.uniform(0, 1, count).tolist()


def test_the_number_of_subnets_matches_the_enumeration(space):
    assert space.count() == len(list(listed(space)))


def test_the_number_of_subnets_follows_the_recurrence_in_the_paper():
    """f(n) = 3 f(n-1) + f(n-2) + f(n-3)."""
    counts = []
    for blocks in range(1, 7):
        extra = [(start, span) for start in range(blocks) for span in (1, 1, 2, 3) if start + span <= blocks]
        counts.append(space_of(blocks, extra).count())
    assert counts[:3] == [3, 10, 34]
    assert all(counts[n] == 3 * counts[n - 1] + counts[n - 2] + counts[n - 3] for n in range(3, 6))


def test_random_subnets_cover_the_space(space):
    rng = np.random.default_rng(0)
    assert {space.random(rng) for _ in range(2_000)} == set(listed(space))


@pytest.mark.parametrize("seed", range(5))
def test_subnets_within_limits_are_ordered_by_loss(space, seed):
    costs, losses = figures(space, seed)
    limits = {"flops": 20.0, "params": 24.0}

    def total(subnet, axis):
        return sum(costs[number][axis] for number in subnet)

    def lost(subnet):
        return sum(losses[number] for number in subnet)

    expected = [s for s in listed(space) if all(total(s, axis) <= limit for axis, limit in limits.items())]
    found = list(space.within(costs, losses, limits))
    assert set(found) <= set(expected)
    assert found == sorted(found, key=lost)
    if expected:
        assert lost(found[0]) == pytest.approx(min(map(lost, expected)))
    assert list(space.within(costs, losses, dict.fromkeys(LIMITED, 1.0))) == []


def test_the_cheapest_subnet_is_found(space):
    costs = [cost["flops"] for cost in figures(space, 7)[0]]
    assert space.cheapest(costs) == min(listed(space), key=lambda s: sum(costs[n] for n in s))


def test_a_path_maps_positions_to_the_variants_that_end_there(space):
    merged = space.with_one(next(n for n, place in enumerate(space.places) if place.name.startswith("2+3")))
    assert merged[:2] == (0, 1)
    assert merged[-1] == 5
    path = space.path(merged)
    for position in range(1, 7):
        numbers = space.ending[position]
        taken = [n for n in merged if space.places[n].end == position]
        assert path[position - 1] == (numbers.index(taken[0]) if taken else len(numbers))
