"""Which part of an inference's time depends on the network, and which part no smaller network saves."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mistify.parsing.quantities import format_time

#: Two consecutive measurements of a network agree if their ratio is at most this. Only then are conditions
#: steady enough to compare networks.
_STEADY: Final = 1.2

#: The estimate of the fixed time is discarded once inferences take less than this share of it.
_BETTER: Final = 0.75

#: Minimum share of its time for waiting to be reported as the cause of a slow inference.
_MUCH: Final = 0.5

_DIGITS: Final = 3


@dataclass(frozen=True)
class Timing:
    """The times of an inference of one network: medians, in milliseconds.

    Attributes:
        expected_ms: Expected latency according to the manifest.
        latency_ms: Latency of the network, to which the target applies.
        computing_ms: The part of the latency during which the network used the processor.
        before_ms: Time from the app's call until the network ran.
    """

    expected_ms: float
    latency_ms: float
    computing_ms: float
    before_ms: float

    @property
    def waiting_ms(self) -> float:
        """The part of the latency during which the network did not use the processor."""
        return max(0.0, self.latency_ms - self.computing_ms)


class FixedTime:
    """Estimator of the fixed time: the part of an inference that does not depend on the network's size.

    Two networks that run one after the other, before and after a switch, are points on a line of measured
    over expected latency. The line's value at an expected latency of 0 is the fixed time. For example,
    networks of 10 and 5 ms that take 30 and 25 ms have a fixed time of 20 ms.

    Most switches happen because conditions change, which makes the points meaningless. So a network counts
    only if two consecutive measurements agree: the last two before the switch and the first two after it. If
    the smaller network takes longer than the larger one, conditions have changed as well.

    Attributes:
        fixed_ms: The fixed time; None until two networks could be compared.
    """

    def __init__(self) -> None:
        self.fixed_ms: float | None = None
        self._detected_at_ms = 0.0
        self._last: Timing | None = None
        self._steady: Timing | None = None
        self._other: Timing | None = None

    def observe(self, timing: Timing) -> None:
        """Include the measurement of an interval."""
        last, self._last = self._last, timing
        if last is None or last.expected_ms != timing.expected_ms:
            self._other, self._steady = self._steady, None
            return
        if self.fixed_ms is not None and timing.latency_ms < _BETTER * self._detected_at_ms:
            self.fixed_ms = None
        self._steady = timing if _agree(last, timing) else None
        if self._steady is not None and self._other is not None:
            self._compare(self._other, timing)
        self._other = None

    def _compare(self, before: Timing, after: Timing) -> None:
        small, large = sorted((before, after), key=lambda timing: timing.expected_ms)
        if small.latency_ms > _STEADY * large.latency_ms:
            return
        slope = (large.latency_ms - small.latency_ms) / (large.expected_ms - small.expected_ms)
        self.fixed_ms = max(0.0, small.latency_ms - max(0.0, slope) * small.expected_ms)
        self._detected_at_ms = after.latency_ms


class Cause(StrEnum):
    """The main cause of a slow inference."""

    NETWORK = "network"
    WAITING = "waiting"
    FIXED = "fixed time"
    CALLS = "calls"


@dataclass(frozen=True)
class Diagnosis:
    """The reason why inferences take longer than their target.

    Attributes:
        cause: The main cause.
        smaller_helps: False if a smaller network would not meet the target either.
        reason: An explanation for people.
    """

    cause: Cause
    smaller_helps: bool
    reason: str


def diagnose(timing: Timing, fixed_ms: float | None, limit_ms: float | None) -> Diagnosis | None:
    """Return why inferences are too slow; None if they are not.

    The calls are the cause if at least half as much time passes before the network starts as it takes; any
    call takes some time. A smaller network helps if the fixed time is below the target. If the fixed time is
    unknown, and the network waits most of the time, the waiting time is taken as fixed: it might shrink with
    the network, but there is no evidence for that.

    Args:
        timing: The times of the running network.
        fixed_ms: The fixed time, from `FixedTime`.
        limit_ms: The target; None for no target.
    """
    if limit_ms is None or timing.latency_ms + timing.before_ms <= limit_ms:
        return None
    takes, before = format_time(timing.latency_ms, _DIGITS), format_time(timing.before_ms, _DIGITS)
    if timing.latency_ms <= limit_ms and timing.before_ms >= _MUCH * timing.latency_ms:
        reason = (
            f"the network takes {takes}, but {before} pass between a call and its start: calls wait for each "
            "other, or inputs take long to check and convert"
        )
        return Diagnosis(Cause.CALLS, False, reason)
    if fixed_ms is not None and fixed_ms >= limit_ms:
        stays = format_time(fixed_ms, _DIGITS)
        reason = f"{stays} of the {takes} of an inference do not depend on the network's size"
        return Diagnosis(Cause.FIXED, False, f"{reason}: a smaller one would not help")
    if timing.waiting_ms >= _MUCH * timing.latency_ms:
        waits = format_time(timing.waiting_ms, _DIGITS)
        reason = f"{waits} of the {takes} of an inference are waiting time for the processor or a device"
        return Diagnosis(Cause.WAITING, fixed_ms is not None or timing.waiting_ms < limit_ms, reason)
    return Diagnosis(Cause.NETWORK, True, f"an inference takes {takes}, mostly computation of the network")


def _agree(first: Timing, second: Timing) -> bool:
    less, more = sorted((first.latency_ms, second.latency_ms))
    return more <= _STEADY * less
