"""The offline front of a supernet: the subnets that no other one dominates (CrowdHMTware III-D2).

The objectives are the loss and the costs of a subnet, sums over its variants. They have no weights: those are
chosen at run time. Small spaces are enumerated; in larger ones, a population evolves as in NSGA-II (Deb et
al., 2002).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from executors.algorithms.adaptivenet.space import Subnet, SupernetSpace

Array = npt.NDArray[Any]

#: The maximum number of subnets in a front.
MOST: Final = 32

#: The largest space that is enumerated.
_ENUMERATED: Final = 2_048

#: The evolution: subnets in a generation, generations, and the share of children with two parents.
_POPULATION: Final = 64
_GENERATIONS: Final = 40
_CROSSED: Final = 0.5


def front(
    space: SupernetSpace, objectives: Array, rng: np.random.Generator, most: int = MOST
) -> list[Subnet]:
    """Return subnets that do not dominate each other, in order of the first objective.

    Args:
        objectives: Loss and costs of each variant, to be minimized [variants, objectives].
        rng: Draws the subnets of a space that is too large to be enumerated.
        most: The number of subnets; from a larger front, those with the most distant neighbours remain.
    """
    small = space.count() <= _ENUMERATED
    subnets = list(_all(space)) if small else _evolved(space, objectives, rng)
    points = _points(subnets, objectives)
    best = np.flatnonzero(ranks(points) == 0)
    kept = best[np.argsort(-crowding_distances(points[best]), kind="stable")[:most]]
    return [subnets[number] for number in sorted(kept, key=lambda number: tuple(points[number]))]


def ranks(points: Array) -> Array:
    """Return the rank of each point by non-dominated sorting [points]: 0 for those that none dominates.

    Equal points do not dominate each other; points of a rank are dominated only by those of lower ranks.

    Args:
        points: Objectives, of which less is better [points, objectives].
    """
    no_worse: Array = np.all(points[:, None] <= points[None], axis=-1)
    dominates: Array = no_worse & np.any(points[:, None] < points[None], axis=-1)
    rank_of = np.full(len(points), -1)
    rank = 0
    while (left := rank_of < 0).any():
        rank_of[left & ~dominates[left].any(0)] = rank
        rank += 1
    return rank_of


def crowding_distances(points: Array) -> Array:
    """Return the distance between the neighbours of each point, summed over the objectives [points].

    Distances are shares of an objective's range. Points with the lowest or highest value are infinitely far
    apart from others.
    """
    distances = np.zeros(len(points))
    for values in points.T:
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        extent = ordered[-1] - ordered[0]
        distances[order[[0, -1]]] = np.inf
        if extent > 0:
            distances[order[1:-1]] += (ordered[2:] - ordered[:-2]) / extent
    return distances


def _points(subnets: Sequence[Subnet], objectives: Array) -> Array:
    return np.array([objectives[list(subnet)].sum(0) for subnet in subnets])


def _all(space: SupernetSpace, position: int = 0) -> Iterator[Subnet]:
    if position == space.blocks:
        yield ()
        return
    for number in space.starting[position]:
        for rest in _all(space, space.places[number].end):
            yield (number, *rest)


def _evolved(space: SupernetSpace, objectives: Array, rng: np.random.Generator) -> list[Subnet]:
    """Return the last generation; the first has the original network and the cheapest on each objective."""
    cheapest = [space.cheapest(values.tolist()) for values in objectives.T]
    population = list(dict.fromkeys([space.original, *cheapest]))
    while len(population) < _POPULATION:
        population.append(space.random(rng))
    for _ in range(_GENERATIONS):
        children = [_child(space, population, rng) for _ in range(_POPULATION)]
        everyone = list(dict.fromkeys([*population, *children]))
        population = _selected(everyone, _points(everyone, objectives))
    return population


def _selected(subnets: Sequence[Subnet], points: Array) -> list[Subnet]:
    """Return the next generation: the lowest ranks, the least crowded subnets of the last one first."""
    rank, chosen = ranks(points), list[int]()
    for one in range(rank.max() + 1):
        same = np.flatnonzero(rank == one)
        apart = same[np.argsort(-crowding_distances(points[same]), kind="stable")]
        chosen += apart[: _POPULATION - len(chosen)].tolist()
    return [subnets[number] for number in chosen]


def _child(space: SupernetSpace, parents: Sequence[Subnet], rng: np.random.Generator) -> Subnet:
    """Return a subnet of one or two parents with one other variant."""
    child = parents[int(rng.integers(len(parents)))]
    if rng.random() < _CROSSED:
        child = _crossed(space, child, parents[int(rng.integers(len(parents)))], rng)
    return with_variant(space, child, int(rng.integers(len(space.places))))


def _crossed(space: SupernetSpace, first: Subnet, second: Subnet, rng: np.random.Generator) -> Subnet:
    """Return the beginning of one subnet and the end of another, from a position that both pass."""
    ends, starts = ({space.places[n].end for n in first}, {space.places[n].start for n in second})
    if not (common := sorted(ends & starts)):
        return first
    position = common[int(rng.integers(len(common)))]
    before = (number for number in first if space.places[number].end <= position)
    return (*before, *(number for number in second if space.places[number].start >= position))


def with_variant(space: SupernetSpace, subnet: Subnet, number: int) -> Subnet:
    """Return a subnet with a variant; the original blocks fill the gaps that it leaves in others' places."""
    place = space.places[number]
    before = [one for one in subnet if space.places[one].end <= place.start]
    after = [one for one in subnet if space.places[one].start >= place.end]
    filled_from = space.places[before[-1]].end if before else 0
    filled_to = space.places[after[0]].start if after else space.blocks
    return (*before, *range(filled_from, place.start), number, *range(place.end, filled_to), *after)
