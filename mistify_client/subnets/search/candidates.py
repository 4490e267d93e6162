"""The candidates of a search: each subnet is scored once, and its score is stored."""

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from mistify_client.assembly.engine import Engine
from mistify_client.assembly.pool import PoolEntry
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.space import Subnet

#: Weight of the loss next to the accuracy. On few examples, accuracies differ little, and by chance.
_LOSS_WEIGHT: Final = 0.5

_DEFAULT_ENGINE: Final = Engine()


class SubnetScore(NamedTuple):
    """The quality of a subnet: its accuracy, where higher is better, and its loss, where lower is better."""

    accuracy: float
    loss: float

    @property
    def worth(self) -> float:
        """The value for choosing subnets, where higher is better."""
        return self.accuracy - _LOSS_WEIGHT * self.loss


#: Converts a score to a value for people.
Figure: TypeAlias = Callable[[SubnetScore], float]

#: Scores a batch of candidates.
Scorer: TypeAlias = Callable[[Sequence[Subnet]], Sequence[SubnetScore]]


class Candidate(NamedTuple):
    """A subnet, its latency from the table, and its score."""

    subnet: Subnet
    latency_ms: float
    score: SubnetScore

    def entry(self, figure: Figure = attrgetter("accuracy"), engine: Engine = _DEFAULT_ENGINE) -> PoolEntry:
        """Return a pool entry, with a value of its score and the engine of its latency."""
        files = tuple(block.file for block in self.subnet)
        return PoolEntry(
            files=files,
            latency_ms=self.latency_ms,
            accuracy=figure(self.score),
            loss=self.score.loss,
            score=self.score.worth,
            engine=engine,
        )

    def fitness(self, budget_ms: float) -> float:
        """Return the accuracy if within the budget; else a negative value that falls with the latency."""
        if self.latency_ms <= budget_ms:
            return self.score.accuracy
        return self.score.accuracy / 100 - self.latency_ms / budget_ms


class Candidates:
    """All candidates of a search."""

    def __init__(self, table: LatencyTable, scorer: Scorer) -> None:
        self._table = table
        self._scorer = scorer
        self._known: dict[Subnet, Candidate] = {}

    def __len__(self) -> int:
        """Return the number of scored subnets."""
        return len(self._known)

    def __contains__(self, subnet: Subnet) -> bool:
        """Check whether a subnet was scored."""
        return subnet in self._known

    @property
    def all(self) -> list[Candidate]:
        """All candidates in the order of scoring."""
        return list(self._known.values())

    def best(self, count: int, budget_ms: float) -> list[Candidate]:
        """Return the fittest candidates, the fittest first."""
        return sorted(self.all, key=lambda one: one.fitness(budget_ms), reverse=True)[:count]

    def scored(self, subnets: Iterable[Subnet]) -> list[Candidate]:
        """Return a candidate for each subnet; new ones are scored in one batch."""
        subnets = list(subnets)
        new = [subnet for subnet in dict.fromkeys(subnets) if subnet not in self._known]
        if new:
            for subnet, score in zip(new, self._scorer(new), strict=True):
                self._known[subnet] = Candidate(subnet, self._table.latency_ms(subnet), score)
        return [self._known[subnet] for subnet in subnets]


def best_entries(
    candidates: Iterable[Candidate],
    figure: Figure = attrgetter("accuracy"),
    original: Candidate | None = None,
    engine: Engine = _DEFAULT_ENGINE,
) -> tuple[PoolEntry, ...]:
    """Return the candidates that score higher than all faster ones and are as accurate, the fastest first.

    On few examples accuracies differ by chance, so the score decides; but users see accuracies, so a subnet
    must not be both slower and less accurate than another one that they see.

    Args:
        candidates: Candidates in any order.
        figure: Converts a score to the value shown in entries.
        original: One of the candidates, which users see as well; None for none.
        engine: The engine of the latencies.
    """
    best: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: (one.latency_ms, -one.score.worth)):
        seen = [*best, original] if original is not None and original.latency_ms <= one.latency_ms else best
        accuracy = max((other.score.accuracy for other in seen), default=-math.inf)
        worth = max((other.score.worth for other in best), default=-math.inf)
        if one.score.worth > worth and one.score.accuracy >= accuracy:
            best.append(one)
    return tuple(one.entry(figure, engine) for one in best)
