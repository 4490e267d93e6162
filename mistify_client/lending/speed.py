"""The time that a network takes on this device, now."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

#: Older measurements do not count beside newer ones, in seconds.
_RECENT_SECONDS: Final = 2.0

_MOST: Final = 9

#: Number of checks that count.
_CHECKS: Final = 3

#: A check that differs from the estimate by this factor shows a change.
_CHANGED: Final = 1.25


class LocalSpeed:
    """The speed of this device for a network, in relation to the time when it was measured.

    Only inferences count that ran here from their inputs to their outputs. The first segments of an inference
    whose rest runs on a helper are fast even on a busy device: while it waits for the helper, it gains the
    right to run at once. Checks of helpers are fast for the same reason, some of them at least, so that the
    slowest of several counts.

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
        self._alone: deque[tuple[float, float]] = deque([(clock(), ratio)], maxlen=_MOST)
        self._checks: deque[float] = deque(maxlen=_CHECKS)
        self._clock = clock
        self._measured_at = clock()

    def observe(self, milliseconds: float) -> None:
        """Learn from an inference on this device alone."""
        self._measured_at = self._clock()
        self._alone.append((self._measured_at, milliseconds / self.whole_ms))
        self._checks.clear()

    def observe_check(self, milliseconds: float) -> None:
        """Learn from an inference of which helpers have run a part as well."""
        self._measured_at = self._clock()
        self._checks.append(milliseconds / sum(self.idle_ms))

    @property
    def ratio(self) -> float:
        """The time of an inference, in relation to the time when the network was measured."""
        newest, ratio = self._alone[-1]
        recent = [each for at, each in self._alone if at >= newest - _RECENT_SECONDS]
        alone = median(recent) if len(recent) > 1 else ratio
        if len(self._checks) == _CHECKS:  # later than all inferences on this device alone
            return max(self._checks)
        return max((alone, *self._checks))

    @property
    def has_changed(self) -> bool:
        """True if the last check was much faster than the estimate, so that the next one should be soon."""
        return bool(self._checks) and self._checks[-1] * _CHANGED < self.ratio

    @property
    def age(self) -> float:
        """Seconds since the last measurement."""
        return self._clock() - self._measured_at

    @property
    def predicted_ms(self) -> float:
        """The milliseconds of the whole network."""
        return self.ratio * self.whole_ms

    @property
    def segment_ms(self) -> tuple[float, ...]:
        """The milliseconds of each segment."""
        ratio = self.ratio
        return tuple(ratio * each for each in self.idle_ms)
