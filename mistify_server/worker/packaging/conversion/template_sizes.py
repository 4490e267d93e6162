"""The sizes in a network's file that follow the widths of its channel groups."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, count
from math import gcd, prod
from typing import Final

import numpy as np

from executors.structure import Structure, Widths
from executors.structure.analysis import Channels

#: The least width: axes of length 1 have no place of their own.
_LEAST_WIDTH: Final = 2

#: The number of choices of larger widths that are tried.
_ATTEMPTS: Final = 64


class UnknownSizeError(Exception):
    """A size in a file does not show which widths it follows; the message says why."""


@dataclass(frozen=True)
class Size:
    """A size at any widths: a multiple of the channels of a tensor, or of the product of two groups.

    The latter is that of the heads of an attention layer and the channels of each head.
    """

    times: int
    factors: tuple[Channels, ...]

    def at(self, widths: Widths) -> int:
        """Return the size at these widths."""
        return self.times * prod(each.count(widths) for each in self.factors)


class Sizes:
    """Tells which widths a size follows from its values at two widths, as each size grows by another factor.

    Args:
        structure: The structure of a network.

    Attributes:
        narrow: The widths of the network.
        wide: Larger widths.

    Raises:
        UnknownSizeError: There are no such widths.
    """

    def __init__(self, structure: Structure) -> None:
        groups = [Channels(0, {name: 1}) for name in structure.groups]
        channels = (_reduced(each) for each in structure.channels if each.per_unit)
        known = {_key(each): each for each in (*groups, *channels)}
        self._singles = [(each,) for each in known.values()]
        self._products = list(combinations(groups, 2))
        self.narrow = {name: max(_LEAST_WIDTH, width) for name, width in structure.widths.items()}
        for attempt in range(_ATTEMPTS):
            self.wide = _grown(self.narrow, attempt)
            if len({self._factor(each) for each in self._singles}) == len(self._singles):
                return
        raise UnknownSizeError("sizes of the network cannot be told apart")

    def of(self, wide: int, narrow: int) -> Size:
        """Return the size that has these values at both widths.

        Raises:
            UnknownSizeError: There is none, or there are several.
        """
        sizes = [*self._having(wide, narrow, self._singles)] or [*self._having(wide, narrow, self._products)]
        if len(sizes) != 1:
            raise UnknownSizeError(f"{len(sizes)} sizes of the network change from {narrow} to {wide}")
        return sizes[0]

    def _having(self, wide: int, narrow: int, candidates: Iterable[tuple[Channels, ...]]) -> Iterator[Size]:
        for factors in candidates:
            times, rest = divmod(wide, Size(1, factors).at(self.wide))
            if not rest and Size(times, factors).at(self.narrow) == narrow:
                yield Size(times, factors)

    def _factor(self, factors: tuple[Channels, ...]) -> Fraction:
        size = Size(1, factors)
        return Fraction(size.at(self.wide), size.at(self.narrow))


def _grown(widths: Widths, attempt: int) -> dict[str, int]:
    """Return larger widths; no two groups grow by the same factor, which is small in the first attempts."""
    rng = np.random.default_rng(attempt)
    grown: dict[str, int] = {}
    factors = set[Fraction]()
    for name, width in widths.items():
        larger = (width + step for step in count(1 + int(rng.integers(1 + attempt))))
        grown[name] = next(each for each in larger if Fraction(each, width) not in factors)
        factors.add(Fraction(grown[name], width))
    return grown


def _reduced(channels: Channels) -> Channels:
    """Return the channels of which these are a multiple."""
    divisor = gcd(channels.fixed, *channels.per_unit.values())
    units = {name: times // divisor for name, times in channels.per_unit.items()}
    return Channels(channels.fixed // divisor, units)


def _key(channels: Channels) -> tuple[int, frozenset[tuple[str, int]]]:
    return channels.fixed, frozenset(channels.per_unit.items())
