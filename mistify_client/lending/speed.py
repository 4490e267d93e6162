"""The time that a network takes on this device, now."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

#: Older measurements do not count beside newer ones, in seconds.
_RECENT_SECONDS: Final = 2.0

_MOST: Final = 9


class LocalSpeed:
    """The speed of this device for a network, in relation to the time when it was measured.

    Only inferences count that ran here from their inputs to their outputs. The first segments of an inference
    whose rest runs on a helper are fast even on a busy device: while it waits for the helper, it gains the
    right to run at once.

    Args:
        whole_ms: Milliseconds of the whole network.
        segment_ms: Milliseconds of each of its segments.
        clock: Returns seconds.
        ratio: The ratio that is known from another network.

    Attributes:
        whole_ms: Milliseconds of the whole network when it was measured.
        idle_ms: Milliseconds of each segment at that time.
    """

    def __init__(
        self,
        whole_ms: float,
        segment_ms: Sequence[float],
        clock: Callable[[], float] = time.perf_counter,
        *,
        ratio: float = 1.0,
    ) -> None:
        self.whole_ms = whole_ms
        self.idle_ms = tuple(segment_ms)
        self._ratios: deque[tuple[float, float]] = deque([(clock(), ratio)], maxlen=_MOST)
        self._clock = clock

    def observe(self, milliseconds: float) -> None:
        """Learn from an inference of the whole network."""
        self._ratios.append((self._clock(), milliseconds / self.whole_ms))

    def observe_segments(self, milliseconds: float) -> None:
        """Learn from an inference of all segments, one after the other."""
        self._ratios.append((self._clock(), milliseconds / sum(self.idle_ms)))

    @property
    def ratio(self) -> float:
        """The time of an inference, in relation to the time when the network was measured."""
        newest, ratio = self._ratios[-1]
        recent = [each for at, each in self._ratios if at >= newest - _RECENT_SECONDS]
        return median(recent) if len(recent) > 1 else ratio

    @property
    def age(self) -> float:
        """Seconds since the last measurement."""
        return self._clock() - self._ratios[-1][0]

    @property
    def predicted_ms(self) -> float:
        """The milliseconds of the whole network."""
        return self.ratio * self.whole_ms
