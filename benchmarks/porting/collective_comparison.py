"""Collective adaptation and adaptation case by case, and the ratio of their times at equal accuracy."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from operator import attrgetter
from statistics import mean
from typing import NamedTuple

import numpy as np


class Ported(NamedTuple):
    """Results for several goals.

    Attributes:
        accuracies: Share of the multiply-adds -> accuracy on the test file in percent.
        seconds: CPU seconds for adapting all goals.
        steps: Training steps for all goals.
        packaging: CPU seconds for their packages.
    """

    accuracies: Mapping[float, float]
    seconds: float
    steps: int
    packaging: float = 0.0

    @property
    def waited(self) -> float:
        """The seconds until all goals are packaged."""
        return self.seconds + self.packaging

    def accuracy(self, shares: Iterable[float]) -> float:
        """Return the mean accuracy at some shares."""
        return mean(self.accuracies[share] for share in shares)


#: The runs of one tool, by the number of steps per goal.
Curve = Mapping[int, Ported]


@dataclass(frozen=True)
class Comparison:
    """All sides for one seed.

    Attributes:
        collective: Number of goals -> goals ported together.
        cases: Name of the tool -> goals ported case by case.
    """

    collective: Mapping[int, Ported]
    cases: Mapping[str, Curve]

    def times_faster(self, tool: str, count: int) -> float:
        """Return the seconds of a tool at collective adaptation's mean accuracy, relative to the latter's."""
        return self._at_its_accuracy(tool, count, attrgetter("waited")) / self.collective[count].waited

    def adapting_times_faster(self, tool: str, count: int) -> float:
        """Return the same ratio for adaptation alone, without packaging."""
        return self._at_its_accuracy(tool, count, attrgetter("seconds")) / self.collective[count].seconds

    def times_fewer_steps(self, tool: str, count: int) -> float:
        """Return the steps of a tool at collective adaptation's mean accuracy, relative to the latter's."""
        return self._at_its_accuracy(tool, count, attrgetter("steps")) / self.collective[count].steps

    def points_below(self, tool: str, steps: int, count: int) -> float:
        """Return the points by which a tool with this many steps per goal is better on average."""
        shares = self._shares(tool, count)
        return self.cases[tool][steps].accuracy(shares) - self.collective[count].accuracy(shares)

    def _shares(self, tool: str, count: int) -> list[float]:
        """Return the shares that both sides have ported."""
        (any_run, *_) = self.cases[tool].values()
        return [share for share in any_run.accuracies if share in self.collective[count].accuracies]

    def _at_its_accuracy(self, tool: str, count: int, of: Callable[[Ported], float]) -> float:
        """Return a tool's time for a number of goals, extrapolated from the mean time of its cases."""
        shares = self._shares(tool, count)
        reached = self.collective[count].accuracy(shares)
        accuracies, spent = list[float](), list[float]()
        for _, ported in sorted(self.cases[tool].items()):
            accuracy = ported.accuracy(shares)
            # If due to noise more steps reach less accuracy, the run with fewer steps counts.
            if not accuracies or accuracy > accuracies[-1]:
                accuracies.append(accuracy)
                spent.append(log(of(ported) / len(ported.accuracies)))
        return count * exp(np.interp(reached, accuracies, spent)) if reached >= accuracies[0] else 0.0
