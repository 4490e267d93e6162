"""The search for the best subnet within a latency budget (AdaptiveNet 5.1, algorithm 1)."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.search.additive import additive, fastest
from mistify_client.subnets.search.candidates import Candidate, Candidates, Scorer
from mistify_client.subnets.search.moves import ATTEMPTS, AnywhereMoves, Moves
from mistify_client.subnets.search.neighbourhood import BAND, NearbyMoves
from mistify_client.subnets.space import Subnet, SubnetSpace

#: Share of a population that is selected as parents.
_PARENTS: Final = 0.4


#: Initial and final temperature of annealing, in units of accuracy.
_HOTTEST: Final = 0.03
_COLDEST: Final = 0.001


class Strategy(StrEnum):
    """A search strategy for subnets.

    - `additive`: each variant is scored alone in the original network; the best sums for all budgets are
      computed exactly, and the most promising subnets are scored.
    - `evolution`: the best subnets of a population are mutated and crossed.
    - `annealing`: several subnets change step by step; worse ones are accepted less and less.
    """

    ADDITIVE = "additive"
    EVOLUTION = "evolution"
    ANNEALING = "annealing"


def search(
    space: SubnetSpace,
    table: LatencyTable,
    scorer: Scorer,
    budget_ms: float,
    strategy: Strategy = Strategy.ADDITIVE,
    *,
    nearby: bool = True,
    band: float = BAND,
    population: int = 50,
    most: int = 800,
    seed: int = 0,
) -> list[Candidate]:
    """Score subnets of a store, with a growing share of good ones within a budget.

    Args:
        table: The latencies of the blocks.
        scorer: Scores batches of subnets.
        budget_ms: The target for the latency of the best subnet.
        nearby: Whether evolution and annealing stay near the budget.
        band: The maximum distance from the budget, as a share of it.
        population: Number of subnets that evolution and annealing score at once.
        most: Maximum number of subnets that evolution and annealing score.
        seed: Seed for all randomness.

    Returns:
        All scored subnets, in order: the original and the fastest one, the package's own, then those
        that were found.
    """
    candidates = Candidates(table, scorer)
    candidates.scored([space.original, fastest(space, table), space.served or space.original])
    if strategy is Strategy.ADDITIVE:
        additive(space, table, candidates, budget_ms)
        return candidates.all
    rng = np.random.default_rng(seed)
    moves: Moves = NearbyMoves(space, table, budget_ms, rng, band) if nearby else AnywhereMoves(space, rng)
    steps = _Steps(candidates, moves, budget_ms, population, most, rng)
    if strategy is Strategy.EVOLUTION:
        steps.evolve()
    else:
        steps.anneal()
    return candidates.all


@dataclass(frozen=True)
class _Steps:
    """The steps of a search; the attributes are those of `search`."""

    candidates: Candidates
    moves: Moves
    budget_ms: float
    population: int
    most: int
    rng: np.random.Generator

    def evolve(self) -> None:
        """Score generation after generation, until the limit is reached or nothing new is found."""
        children = self._first()
        while children:
            self.candidates.scored(children)
            parents = self.candidates.best(math.ceil(_PARENTS * self.population), self.budget_ms)
            count = min(self.population, self.most - len(self.candidates))
            children = self._children([parent.subnet for parent in parents], count)

    def anneal(self) -> None:
        """Change each subnet of a population step by step while the temperature falls."""
        present = self.candidates.scored(self._first())
        for temperature in np.geomspace(_HOTTEST, _COLDEST, math.ceil(self.most / self.population) - 1):
            left = self.most - len(self.candidates)
            proposed = self.candidates.scored([self.moves.mutated(one.subnet) for one in present][:left])
            for place, (old, new) in enumerate(zip(present, proposed, strict=False)):
                gain = new.fitness(self.budget_ms) - old.fitness(self.budget_ms)
                if gain >= 0 or self.rng.random() < math.exp(gain / temperature):
                    present[place] = new

    def _first(self) -> list[Subnet]:
        return self.moves.initial(min(self.population, self.most))

    def _children(self, parents: list[Subnet], count: int) -> list[Subnet]:
        """Return children that are not yet scored; fewer than `count` if others are hard to find."""
        children: dict[Subnet, None] = {}
        for attempt in range(count * ATTEMPTS):
            if len(children) == count:
                break
            first, second = (parents[int(place)] for place in self.rng.integers(len(parents), size=2))
            has_one_parent = attempt % 2 == 0
            child = self.moves.mutated(first) if has_one_parent else self.moves.crossed(first, second)
            if child not in self.candidates:
                children[child] = None
        return list(children)
