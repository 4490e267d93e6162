"""Whether other processes compete for the processor at the moment."""

import statistics
import time
from typing import Final

_ADDITIONS: Final = 300
_RUNS: Final = 15

#: A loop that takes longer than this many times its best was slowed down: readings differ by some per cent.
_TOLERANCE: Final = 1.15


class ContentionProbe:
    """Detects competing work by the time of a Python loop, compared with its best time so far.

    A core that runs a second thread of another program gives each of them less: on an Intel Xeon the loop
    takes 1.6 times as long then, a network of small operators 1.5 times, a network of large convolutions 1.1
    times. It is the most sensitive of the three, as it hardly waits for memory or for vector units.
    """

    def __init__(self) -> None:
        self._least_seconds = float("inf")

    def seconds(self) -> float:
        """Return the present time of the loop: the median of 15 runs, a tenth of a millisecond in all."""
        taken = statistics.median(_loop_seconds() for _ in range(_RUNS))
        self._least_seconds = min(self._least_seconds, taken)
        return taken

    def slowed(self, seconds: float) -> bool:
        """Return whether other work slowed down a loop that took so long."""
        return seconds > _TOLERANCE * self._least_seconds


def _loop_seconds() -> float:
    start = time.perf_counter()
    total = 0
    for number in range(_ADDITIONS):
        total += number
    return time.perf_counter() - start
