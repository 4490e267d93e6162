"""Present latency of options: the ratio of measured to expected latency, corrected by option (paper 6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mistify_client.monitor.sensing.bottleneck import Timing
from mistify_client.runtime.options import Option

#: Fewer inferences are ignored: a single one that was interrupted does not show a change of conditions.
LEAST_INFERENCES = 3
#: An interval with fewer inferences is filled up with earlier ones to this number. Beyond
#: `LEAST_INFERENCES`, only recent ones are used.
USUAL_INFERENCES = 5
#: An inference is recent if it ended at most this long before the last one.
RECENT_SECONDS = 10.0

#: The share of a deviation that is attributed to the option. The rest may come from conditions that changed
#: in the meantime.
_LEARNED = 0.5
#: The largest factor by which an option is corrected, up or down.
_MOST = 2.0


class LatencyEstimator:
    """Estimator of the present latency of option o: expected_ms[o] * corrections[o] * ratio.

    Conditions such as load change the ratio, which all options share. A change of latency that comes with a
    switch to another option shows that the two options deviate from each other, for example because one
    has operations that this device is slow at. Without a correction, an option that always takes longer than
    expected would be left and chosen again forever.

    The correction is split equally between the option that was entered and the one that was left. Most
    switches happen while conditions worsen, and the ratio measured before the switch contains only part of
    that. If only the entered option were corrected, all corrections would rise with time.

    Args:
        expected_ms: Milliseconds of each option by the manifest, in the order of the options.
        ratio: Initial value of the ratio.

    Attributes:
        corrections: A factor for each option.
        ratio: Measured over expected latencies.
        timing: The times that were measured last; None before the first measurement.
    """

    def __init__(self, expected_ms: Sequence[float], ratio: float = 1.0) -> None:
        self._expected_ms = tuple(expected_ms)
        self.corrections = [1.0] * len(self._expected_ms)
        self.ratio = ratio
        self.timing: Timing | None = None
        self._option: int | None = None

    @property
    def predicted_ms(self) -> tuple[float, ...]:
        """Return the milliseconds that an inference of each option would take now."""
        pairs = zip(self._expected_ms, self.corrections, strict=True)
        return tuple(expected * correction * self.ratio for expected, correction in pairs)

    def corrected(self, options: Sequence[Option]) -> tuple[Option, ...]:
        """Return the options with corrected latencies, without the ratio."""
        pairs = zip(options, self.corrections, strict=True)
        return tuple(_slowed(option, factor) for option, factor in pairs)

    def observe(self, inferences: npt.NDArray[Any], since: float) -> bool:
        """Update the ratio and the corrections from measured inferences.

        The median of the recent inferences of one option counts: the option that ran last, at batch size 1,
        which the latencies in manifests refer to.

        Args:
            inferences: Candidates in order of time, an array of shape (n,) and dtype
                `runtime.statistics.INFERENCE`.
            since: Start of the present interval, in seconds of the monotonic clock. At least one inference
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
        self._measured(option, latency_ms)
        return True

    def _measured(self, option: int, latency_ms: float) -> None:
        if self._option is not None and option != self._option:
            learned = (latency_ms / self.predicted_ms[option]) ** _LEARNED
            self._correct(option, learned**0.5)
            self._correct(self._option, learned**-0.5)
        self._option = option
        self.ratio = latency_ms / (self._expected_ms[option] * self.corrections[option])

    def _correct(self, option: int, factor: float) -> None:
        self.corrections[option] = min(_MOST, max(1 / _MOST, self.corrections[option] * factor))


def _slowed(option: Option, factor: float) -> Option:
    return replace(option, costs=replace(option.costs, latency_ms=option.costs.latency_ms * factor))
