"""Present latency of options: the ratio of measured to expected latency, corrected per option (paper 6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mistify_client.monitor.sensing.bottleneck import Timing
from mistify_client.runtime.options import Option

#: Fewer inferences are ignored: a single interrupted one does not indicate a change of conditions.
LEAST_INFERENCES = 3
#: If an interval has fewer inferences, earlier ones are added up to this number. Beyond `LEAST_INFERENCES`,
#: only recent ones are added.
USUAL_INFERENCES = 5
#: An inference is recent if it ended at most this long before the last one.
RECENT_SECONDS = 10.0

#: The share of a deviation that is attributed to the option. The rest may be due to conditions that changed
#: in the meantime.
_LEARNED = 0.5
#: The largest factor by which an option is corrected, up or down.
_MOST = 2.0


class LatencyEstimator:
    """Estimator of the present latency of option o: expected_ms[o] * corrections[o] * ratio.

    Conditions such as load change the ratio, which all options share. A change of latency at a switch to
    another option shows that the two options deviate differently, for example because one has operations that
    are slow on this device. Without a correction, the policy would alternate forever between other options
    and one that always takes longer than expected.

    The correction is split equally between the two options. Most switches happen while conditions worsen, and
    the ratio measured before the switch reflects that only partly. If only the new option were corrected, all
    corrections would drift upwards.

    Args:
        expected_ms: Milliseconds of each option according to the manifest, in the order of the options.
        ratio: Initial value of the ratio.

    Attributes:
        corrections: A factor for each option.
        ratio: Ratio of measured to expected latencies.
        computing_share: Share of the latency during which the network used the processor; 1 before the first
            measurement. So the ratio of processor time to the expected latency is `ratio * computing_share`,
            and that of latency to processor time its inverse.
        timing: The most recently measured times; None before the first measurement.
        option: The index of the option that they belong to; -1 before the first measurement.
    """

    def __init__(self, expected_ms: Sequence[float], ratio: float = 1.0) -> None:
        self._expected_ms = list(expected_ms)
        self.corrections = [1.0] * len(self._expected_ms)
        self.ratio = ratio
        self.computing_share = 1.0
        self.timing: Timing | None = None
        self.option = -1

    @property
    def predicted_ms(self) -> tuple[float, ...]:
        """The present latency of each option in milliseconds."""
        pairs = zip(self._expected_ms, self.corrections, strict=True)
        return tuple(expected * correction * self.ratio for expected, correction in pairs)

    def corrected(self, options: Sequence[Option]) -> tuple[Option, ...]:
        """Return the options with corrected latencies, without the ratio."""
        pairs = zip(options, self.corrections, strict=True)
        return tuple(_slowed(option, factor) for option, factor in pairs)

    def expect(self, option: int, expected_ms: float) -> None:
        """Replace the expected latency of an option, in milliseconds, and its correction."""
        self._expected_ms[option], self.corrections[option] = expected_ms, 1.0

    def observe(self, inferences: npt.NDArray[Any], since: float) -> bool:
        """Update the ratio and the corrections from measured inferences.

        Uses the median of the recent inferences of one option: the option that ran last, at batch size 1, to
        which the latencies in manifests refer.

        Args:
            inferences: Candidates in chronological order, an array of shape (n,) and dtype
                `runtime.statistics.INFERENCE`.
            since: Start of the current interval, in seconds of the monotonic clock. At least one inference
                has to have ended in the interval.

        Returns:
            True if the estimate was updated, False if there were too few inferences.
        """
        single = inferences[(inferences["batch"] == 1) & (inferences["latency_ms"] > 0)]
        same = single[single["option"] == single["option"][-1:]]
        if len(same) < LEAST_INFERENCES or same["ended"][-1] < since:
            return False
        fresh = int(np.count_nonzero(same["ended"] >= since))
        recent = int(np.count_nonzero(same["ended"] >= same["ended"][-1] - RECENT_SECONDS))
        counted = max(LEAST_INFERENCES, min(recent, max(fresh, USUAL_INFERENCES)))
        option = int(same["option"][-1])
        latency_ms, computing_ms, before_ms = (
            float(np.median(same[name][-counted:])) for name in ("latency_ms", "computing_ms", "before_ms")
        )
        self.timing = Timing(self._expected_ms[option], latency_ms, computing_ms, before_ms)
        self.computing_share = min(1.0, computing_ms / latency_ms)
        self._measured(option, latency_ms)
        return True

    def follow(self, option: int, latency_ms: float) -> None:
        """Update the ratio from the latency of an option on this device alone, as an app has measured it."""
        self.option = option
        self.ratio = latency_ms / (self._expected_ms[option] * self.corrections[option])

    def _measured(self, option: int, latency_ms: float) -> None:
        if self.option not in (-1, option):
            learned = (latency_ms / self.predicted_ms[option]) ** _LEARNED
            self._correct(option, learned**0.5)
            self._correct(self.option, learned**-0.5)
        self.follow(option, latency_ms)

    def _correct(self, option: int, factor: float) -> None:
        self.corrections[option] = min(_MOST, max(1 / _MOST, self.corrections[option] * factor))


def _slowed(option: Option, factor: float) -> Option:
    return replace(option, costs=replace(option.costs, latency_ms=option.costs.latency_ms * factor))
