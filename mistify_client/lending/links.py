"""The time that a helper and the link to it take, measured with the messages themselves.

The clock of the helper measures the transfer, from the arrival of a short announcement to that of the tensors
behind it. A device that waits for its own processor would measure its waiting as well, which is already part
of the time of its blocks.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

#: Milliseconds of an empty message and its answer, until measured: what gRPC takes on one machine.
_ROUND_TRIP_MS: Final = 0.3

#: Milliseconds per byte until measured: 100 MB/s, and copies of 2 us per KB.
_BYTE_MS: Final = 1e-5 + 2e-6

#: Transfers of fewer bytes say nothing about the bandwidth.
MEASURING_BYTES: Final = 16384

#: Number of messages, the most recent ones, that estimates are made of.
_RECENT: Final = 5

#: A last measurement that differs from the estimate by this factor shows a change.
_CHANGED: Final = 1.25
_RECENT_ROUND_TRIPS: Final = 20

#: Segments of fewer milliseconds and a smaller share of the network say nothing about the speed of a helper:
#: the first ones after a pause take several times as long. Probes run such segments.
_TELLING_MS: Final = 1.0
_TELLING_SHARE: Final = 0.2


@dataclass(frozen=True)
class Exchange:
    """A message to a helper with its answer.

    Attributes:
        sent: Bytes of the message.
        received: Bytes of the answer.
        wall_ms: Milliseconds from sending to the answer, by the clock of this device.
        serving_ms: Milliseconds from the arrival of the message until its answer was sent, by the helper's
            clock.
        transfer_ms: Milliseconds of the transfer, by the helper's clock; None if not measured.
    """

    sent: int
    received: int
    wall_ms: float
    serving_ms: float
    transfer_ms: float | None


class Link:
    """The link to a helper."""

    def __init__(self) -> None:
        self._byte_ms: deque[float] = deque(maxlen=_RECENT)
        self._round_trip_ms: deque[float] = deque(maxlen=_RECENT_ROUND_TRIPS)

    def observe(self, exchange: Exchange) -> None:
        """Learn from a message."""
        transfer_ms = exchange.transfer_ms
        if transfer_ms is None:
            transfer_ms = self.byte_ms * exchange.sent
        elif exchange.sent >= MEASURING_BYTES:
            self._byte_ms.append(max(0.0, transfer_ms) / exchange.sent)
        transfers = transfer_ms + self.byte_ms * exchange.received
        self._round_trip_ms.append(max(0.0, exchange.wall_ms - exchange.serving_ms - transfers))

    @property
    def byte_ms(self) -> float:
        """Milliseconds per byte."""
        return median(self._byte_ms) if self._byte_ms else _BYTE_MS

    @property
    def has_changed(self) -> bool:
        """True if the last measurement of the bandwidth differs from the estimate."""
        return bool(self._byte_ms) and _differs(self._byte_ms[-1], self.byte_ms)

    @property
    def round_trip_ms(self) -> float:
        """Milliseconds of an empty message and its answer: the least of recent ones, so without waiting."""
        return min(self._round_trip_ms, default=_ROUND_TRIP_MS)


class HelperSpeed:
    """The speed of a helper, now.

    Args:
        segment_ms: Milliseconds of each segment of the network, measured by the helper when it loaded them.

    Attributes:
        idle_ms: These milliseconds.
    """

    def __init__(self, segment_ms: Sequence[float]) -> None:
        self.idle_ms = tuple(segment_ms)
        self._ratios: deque[float] = deque(maxlen=_RECENT)
        self._overhead_ms: deque[float] = deque(maxlen=_RECENT)

    def observe(self, start: int, end: int, computing_ms: float, serving_ms: float) -> None:
        """Learn from an inference.

        Args:
            start: Index of the first segment that ran.
            end: Index of the segment behind the last one.
            computing_ms: Milliseconds of the segments.
            serving_ms: Milliseconds from the arrival of the request until its answer was sent.
        """
        idle_ms = sum(self.idle_ms[start:end])
        if idle_ms >= min(_TELLING_MS, _TELLING_SHARE * sum(self.idle_ms)):
            self._ratios.append(computing_ms / idle_ms)
        self._overhead_ms.append(serving_ms - computing_ms)

    @property
    def overhead_ms(self) -> float:
        """Milliseconds of what the helper does beside the segments."""
        return median(self._overhead_ms) if self._overhead_ms else 0.0

    @property
    def segment_ms(self) -> tuple[float, ...]:
        """The milliseconds of each segment."""
        return tuple(self._ratio * each for each in self.idle_ms)

    @property
    def has_changed(self) -> bool:
        """True if the last measurement differs from the estimate."""
        return bool(self._ratios) and _differs(self._ratios[-1], self._ratio)

    @property
    def _ratio(self) -> float:
        return median(self._ratios) if self._ratios else 1.0


def _differs(last: float, estimate: float) -> bool:
    return max(last, estimate) > _CHANGED * min(last, estimate)
