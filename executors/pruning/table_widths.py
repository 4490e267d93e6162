"""The widths with the least sum of losses within limits on costs.

The costs of groups are not independent: a layer costs its inputs times its outputs. So widths are improved in
rounds. Each round adds up the changes of the costs when single groups change, and chooses the widths of all
groups at once by dynamic programming, as in ZipLM (Kurtic et al., 2023), near the present ones. The true
costs decide whether they are accepted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from executors.pruning.knapsack import cheapest_choices
from executors.pruning.loss_table import LossTable
from executors.structure import Structure, Widths
from mistify.costs.axes import costs_of
from mistify.costs.budget import Costs
from mistify.costs.profiles import Profile

Array = npt.NDArray[np.float64]

#: Widths per halving of a group, and how many of them a group may move in a round: at first, and halved
#: whenever a round does not help.
_PER_HALVING: Final = 4
_REACH: Final = 8

#: Kernels compute several channels at once, so that multiples of a power of two are compared as well: of the
#: smallest one with at most this many multiples.
_MULTIPLES: Final = 16

#: Approximate number of networks whose costs are computed in a round.
_NETWORKS: Final = 240

#: Attempts of a round to keep the true costs within the limits.
_ATTEMPTS: Final = 4

#: The least improvement, relative to the loss, for which another round follows.
_LEAST_GAIN: Final = 1e-4

#: Resolution of the search for widths in proportion to the network's.
_SCALES: Final = 256


def widths_within(
    table: LossTable, structure: Structure, widths: Widths, limits: Costs, profiles: Iterable[Profile]
) -> dict[str, int] | None:
    """Return the widths with the least loss within limits; None if no widths are within them.

    Args:
        table: The losses of all groups.
        widths: The widest network: number of units left in each group.
        limits: Axis -> limit on the cost.
        profiles: Profiles of the hardware with limited latency.
    """
    search = _Search(table, structure, widths, limits, tuple(profiles))
    start = search.proportional()
    return None if start is None else search.improved(start)


class _Search:
    """The search among networks within limits."""

    def __init__(
        self,
        table: LossTable,
        structure: Structure,
        widths: Widths,
        limits: Costs,
        profiles: tuple[Profile, ...],
    ) -> None:
        self._table, self._structure, self._profiles = table, structure, profiles
        self._limits, self._most = limits, dict(widths)
        self._least = {name: min(structure.groups[name].least, width) for name, width in widths.items()}
        self._grids = {name: _grid(self._least[name], width) for name, width in widths.items()}

    def proportional(self) -> dict[str, int] | None:
        """Return the widest network with all groups in proportion; None if the narrowest exceeds a limit."""
        low, high = 0, _SCALES + 1
        if self._used(self._least).max() > 1:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._used(self._scaled(middle)).max() <= 1 else (low, middle)
        return self._scaled(low)

    def improved(self, widths: dict[str, int]) -> dict[str, int]:
        """Return the best widths that rounds from these widths lead to, without room for more units."""
        reach = _REACH
        while reach:
            nearby = {name: self._nearby(name, width, reach) for name, width in widths.items()}
            better = self._round(widths, nearby)
            if better is None:
                reach //= 2
            else:
                widths = better
        steps = {name: self._between(name, width) for name, width in widths.items()}
        return self._filled(self._round(widths, steps) or widths)

    def _round(self, widths: dict[str, int], choices: Mapping[str, Sequence[int]]) -> dict[str, int] | None:
        """Return better widths among the choices for each group; None if there are none within the limits."""
        now = self._used(widths)
        losses = [self._table.of(name, own) for name, own in choices.items()]
        costs = [
            np.array([self._used({**widths, name: width}) - now for width in own])
            for name, own in choices.items()
        ]
        room, before = 1 - now, self._loss(widths)
        for _ in range(_ATTEMPTS):
            picks = cheapest_choices(losses, costs, room)
            if picks is None:
                return None
            better = {name: own[pick] for (name, own), pick in zip(choices.items(), picks, strict=True)}
            if self._loss(better) >= before * (1 - _LEAST_GAIN):
                return None
            excess = self._used(better) - 1
            if excess.max() <= 0:
                return better
            room = room - np.maximum(excess, 0)
        return None

    def _filled(self, widths: dict[str, int]) -> dict[str, int]:
        """Return the widths with as many more units as the limits allow, where they gain most first."""
        gains = {
            name: float(np.subtract(*self._table.of(name, [width, width + 1])))
            for name, width in widths.items()
            if width < self._most[name]
        }
        for name in sorted(gains, key=lambda name: -gains[name]):
            low, high = widths[name], self._most[name] + 1
            while high - low > 1:
                middle = (low + high) // 2
                fits = self._used({**widths, name: middle}).max() <= 1
                low, high = (middle, high) if fits else (low, middle)
            widths = {**widths, name: low}
        return widths

    def _nearby(self, name: str, width: int, reach: int) -> list[int]:
        """Return some widths of a group's grid: its neighbours, and those within a reach."""
        below, above = self._neighbours(name, width)
        low = min(below, width * 2 ** (-reach / _PER_HALVING))
        high = max(above, width * 2 ** (reach / _PER_HALVING))
        return self._sampled([each for each in self._grids[name] if low <= each <= high], width)

    def _between(self, name: str, width: int) -> list[int]:
        """Return some widths of a group between its neighbours in its grid."""
        below, above = self._neighbours(name, width)
        return self._sampled(range(below, above + 1), width)

    def _neighbours(self, name: str, width: int) -> tuple[int, int]:
        """Return the next widths of a group's grid below and above a width, as far as there are any."""
        grid = self._grids[name]
        below, above = bisect_left(grid, width) - 1, bisect_right(grid, width)
        return grid[max(below, 0)], grid[min(above, len(grid) - 1)]

    def _sampled(self, widths: Sequence[int], present: int) -> list[int]:
        """Return evenly spaced widths, as many as there is time for, and the present one."""
        count = max(4, _NETWORKS // len(self._grids))
        places = np.linspace(0, len(widths) - 1, min(count, len(widths)))
        return sorted({present, *(int(widths[round(place)]) for place in places)})

    def _scaled(self, scale: int) -> dict[str, int]:
        return {
            name: max(self._least[name], round(scale / _SCALES * width)) for name, width in self._most.items()
        }

    def _loss(self, widths: Widths) -> float:
        return float(sum(self._table.of(name, [width])[0] for name, width in widths.items()))

    def _used(self, widths: Widths) -> Array:
        """Return the share of each limit that a network needs [limits]."""
        costs = costs_of(self._structure.network(widths), self._profiles, only=self._limits)
        return np.array([costs[axis] / limit for axis, limit in self._limits.items()])


def _grid(least: int, most: int) -> list[int]:
    """Return the widths of a group that are compared, in ascending order."""
    halvings = np.arange(0, np.log2(most / least) + 1 / _PER_HALVING, 1 / _PER_HALVING)
    scaled = (max(least, round(float(most * 2**-each))) for each in halvings)
    grain = 1
    while most // grain > _MULTIPLES:
        grain *= 2
    return sorted({least, most, *scaled, *range(-(-least // grain) * grain, most, grain)})
