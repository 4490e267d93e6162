"""Whether other work slows the processor down at the moment."""

import statistics
import time
from typing import Final

_ADDITIONS: Final = 300
_RUNS: Final = 15

#: Up to so many times its least time, a loop is not slowed down: readings of it differ by some per cent.
_TOLERANCE: Final = 1.15


class Pace:
    """How long a loop of Python takes, compared with the least it ever took.

    A core that runs a second thread of another program gives each of them less: on an Intel Xeon the loop
    takes 1.6 times as long then, a network of small operators 1.5 times, a network of large convolutions 1.1
    times. It is the most sensitive of the three, as it hardly waits for memory or for vector units.
    """

    def __init__(self) -> None:
        self._least_seconds = float("inf")

    def seconds(self) -> float:
        """Return how long the loop takes now: the median of 15 runs, a tenth of a millisecond in all."""
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
