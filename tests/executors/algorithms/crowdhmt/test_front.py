"""The offline front, compared with one found by comparing all pairs."""

import numpy as np
import pytest

from executors.algorithms.adaptivenet.space import SupernetSpace, VariantSpan
from executors.algorithms.crowdhmt.estimates import estimates
from executors.algorithms.crowdhmt.front import MOST, crowding_distances, front, ranks, with_variant
from mistify.costs.energy import EnergyOrigin
from tests.support import elastic_stores


def space_of(blocks, others=2):
    """Return a space with other variants of each inner block, and of each pair of inner blocks."""
    places = [VariantSpan(f"block-{at}", at, 1) for at in range(blocks)]
    for at in range(1, blocks - 1):
        places += [VariantSpan(f"block-{at}-{number}", at, 1) for number in range(others)]
    places += [VariantSpan(f"block-{at}-merge", at, 2) for at in range(1, blocks - 2)]
    return SupernetSpace(tuple(places), blocks)


def random_objectives(space, seed=0):
    """Return a loss and two costs of each variant; the original blocks have no loss and the highest costs."""
    rng = np.random.default_rng(seed)
    found = np.column_stack(
        [rng.exponential(1, (len(space.places), 1)), rng.uniform(0.1, 0.9, (len(space.places), 2))]
    )
    found[: space.blocks] = (0, 1, 1)
    return found


def objectives_of(subnets, objectives):
    return np.array([objectives[list(subnet)].sum(0) for subnet in subnets])


def dominated(point, points):
    return any((other <= point).all() and (other < point).any() for other in points)


def subnets(space, position=0):
    if position == space.blocks:
        return [()]
    return [
        (number, *rest)
        for number in space.starting[position]
        for rest in subnets(space, space.places[number].end)
    ]


def is_network(space, subnet):
    ends = [0, *(space.places[number].end for number in subnet)]
    return ends[-1] == space.blocks and [space.places[number].start for number in subnet] == ends[:-1]


def test_ranks_are_those_of_repeatedly_removed_fronts():
    points = np.random.default_rng(1).integers(0, 6, (60, 3))
    left, expected, rank = list(range(60)), {}, 0
    while left:
        best = [number for number in left if not dominated(points[number], points[left])]
        expected.update(dict.fromkeys(best, rank))
        left, rank = [number for number in left if number not in best], rank + 1
    assert ranks(points).tolist() == [expected[number] for number in range(60)]


def test_distances_are_those_between_neighbours():
    points = np.array([[0.0, 8.0], [1.0, 6.0], [4.0, 3.0], [10.0, 0.0]])
    distances = crowding_distances(points)
    assert distances[[0, 3]].tolist() == [np.inf, np.inf]
    assert distances[1:3] == pytest.approx([0.4 + 5 / 8, 0.9 + 6 / 8])


def test_the_front_of_a_small_space_is_exact():
    space = space_of(5)
    objectives = random_objectives(space)[:, :2]
    points = {subnet: objectives[list(subnet)].sum(0) for subnet in subnets(space)}
    expected = [subnet for subnet, point in points.items() if not dominated(point, points.values())]
    found = front(space, objectives, np.random.default_rng(0), most=1_000)
    assert set(found) == set(expected)
    assert [points[subnet][0] for subnet in found] == sorted(points[subnet][0] for subnet in found)


def test_a_large_front_is_thinned_out_but_keeps_its_ends():
    space = space_of(6)
    objectives = random_objectives(space)
    whole = front(space, objectives, np.random.default_rng(0))
    found = front(space, objectives, np.random.default_rng(0), most=7)
    assert len(whole) > len(found) == 7
    assert set(found) < set(whole)
    points = objectives_of(whole, objectives)
    assert {whole[number] for number in points.argmin(0)} <= set(found)


def test_evolution_comes_close_to_the_front_of_a_large_space():
    space = space_of(12, 3)
    assert space.count() > 10_000
    objectives = random_objectives(space)[:, :2]
    found = front(space, objectives, np.random.default_rng(0))
    assert 16 < len(found) <= MOST
    assert all(is_network(space, subnet) for subnet in found)
    points = objectives_of(found, objectives)
    costs = [{"cost": cost} for cost in objectives[:, 1]]
    for limit in (11.0, 9.0, 7.0, 5.0):
        (best, *_) = space.within(costs, objectives[:, 0].tolist(), {"cost": limit})
        own = points[points[:, 1] <= limit, 0].min()
        assert own <= objectives[list(best), 0].sum() + 0.35


def test_a_variant_can_replace_parts_of_others():
    space = space_of(6)
    rng = np.random.default_rng(2)
    for _ in range(50):
        subnet, number = space.random(rng), int(rng.integers(len(space.places)))
        changed = with_variant(space, subnet, number)
        assert number in changed
        assert is_network(space, changed)


def test_a_package_lists_the_front_of_its_blocks():
    blocks = elastic_stores.blocks()
    found = estimates(blocks)
    by_file = {block.file: block for block in blocks}
    assert 4 < len(found) <= MOST
    assert found[0].files == tuple(block.file for block in blocks[:6])
    losses = [sum(by_file[file].estimate.loss for file in one.files) for one in found]
    assert [one.loss for one in found] == pytest.approx(losses)
    assert losses == sorted(losses)
    costs = [(one.loss, one.latency_ms, one.energy_mj) for one in found]
    assert len(set(costs)) == len(costs)
    assert found[0].energy_mj > found[-1].energy_mj > 0
    assert {one.energy_origin for one in found} == {EnergyOrigin.PUBLISHED}
