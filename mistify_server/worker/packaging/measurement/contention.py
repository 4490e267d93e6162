"""Detection of other processes that compete for the processor."""

import statistics
import time
from typing import Final

_ADDITIONS: Final = 300
_RUNS: Final = 15

#: A loop counts as slowed down beyond this multiple of its best time: readings vary by a few per cent.
_TOLERANCE: Final = 1.15


class ContentionProbe:
    """Detects competing work by the duration of a Python loop, compared with its best so far.

    A core that also runs another program's thread slows both down. On an Intel Xeon, the loop then takes 1.6
    times as long, a network of small operators 1.5 times, and a network of large convolutions 1.1 times. The
    loop is the most sensitive, because it hardly waits for memory or vector units.
    """

    def __init__(self) -> None:
        self._least_seconds = float("inf")

    def seconds(self) -> float:
        """Return the loop's current duration: the median of 15 runs, a tenth of a millisecond in total."""
        taken = statistics.median(_loop_seconds() for _ in range(_RUNS))
        self._least_seconds = min(self._least_seconds, taken)
        return taken

    def slowed(self, seconds: float) -> bool:
        """Return whether a loop of this duration was slowed down by other work."""
        return seconds > _TOLERANCE * self._least_seconds


def _loop_seconds() -> float:
    start = time.perf_counter()
    total = 0
    for number in range(_ADDITIONS):
        total += number
    return time.perf_counter() - start
