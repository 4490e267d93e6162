"""What inferences with helpers take longer than predicted, learned from measured times."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Final

from mistify_client.lending.chains import Part

#: Seconds for which a difference between measured and predicted times counts.
_SECONDS: Final = 30.0

#: The number of differences that count, and the fewest that say anything.
_RECENT: Final = 41
_FEWEST: Final = 5


def helpers_of(chain: Sequence[Part]) -> tuple[str, ...]:
    """Return the addresses of the helpers of a chain, in the order of their parts."""
    return tuple(part.helper for part in chain if part.helper is not None)


@dataclass(frozen=True)
class Corrections:
    """The corrections of predicted times at one moment.

    Attributes:
        milliseconds: Chain -> what it takes longer than predicted; only chains of which enough is known.
    """

    milliseconds: Mapping[tuple[Part, ...], float]

    def of_chain(self, chain: tuple[Part, ...]) -> float:
        """Return the milliseconds for a chain.

        A cut with a single helper is tried before anything is held against it: how long a busy device waits
        for its processor depends on what it runs itself. Of several helpers there are too many chains for
        that, so that the least of the same helpers with other cuts counts, or what each takes longer alone.
        """
        if (known := self.milliseconds.get(chain)) is not None:
            return known
        helpers = helpers_of(chain)
        if len(helpers) <= 1:
            return 0.0
        if (least := self._least.get(helpers)) is not None:
            return least
        return sum(max(0.0, self.of_helper(each)) for each in helpers)

    def of_helper(self, address: str) -> float:
        """Return the milliseconds for a helper, with the cut at which they are least."""
        return self._least.get((address,), 0.0)

    @cached_property
    def _least(self) -> dict[tuple[str, ...], float]:
        """The least correction of each sequence of helpers."""
        least: dict[tuple[str, ...], float] = {}
        for chain, milliseconds in self.milliseconds.items():
            helpers = helpers_of(chain)
            least[helpers] = min(milliseconds, least.get(helpers, milliseconds))
        return least


class CorrectionHistory:
    """The recent differences between measured and predicted times.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._differences: dict[tuple[Part, ...], deque[tuple[float, float]]] = {}

    def add(self, chain: tuple[Part, ...], milliseconds: float) -> None:
        """Add what an inference took longer than predicted."""
        known = self._differences.setdefault(chain, deque(maxlen=_RECENT))
        known.append((self._clock(), milliseconds))

    @property
    def corrections(self) -> Corrections:
        """The corrections at present: the median of the recent differences of each chain."""
        since = self._clock() - _SECONDS
        recent = {
            chain: [each for at, each in known if at >= since]
            for chain, known in self._differences.items()
            if known[-1][0] >= since
        }
        return Corrections({chain: median(each) for chain, each in recent.items() if len(each) >= _FEWEST})
