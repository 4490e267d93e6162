"""How long branches take now: the ratio of measured to expected latency, corrected by branch (paper 6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mistify_client.monitor.sensing.costs import BranchCosts

#: Fewer inferences than these say nothing: one that met an interruption is no change of conditions.
LEAST_INFERENCES = 3
#: As many are looked at where an interval has fewer, but none beyond the least that is not recent.
USUAL_INFERENCES = 5
#: How much older than the last inference the others may be to be recent.
RECENT_SECONDS = 10.0

#: How much of a deviation is put down to the branch. The rest may be conditions that changed meanwhile.
_LEARNED = 0.5
#: Branches deviate from each other by this factor at the most.
_MOST = 2.0


class LatencyEstimator:
    """Latency of branch b now = expected_ms[b] * corrections[b] * ratio.

    Conditions change the ratio, for all branches alike. What a change of branch alone has changed is a
    deviation of the one that was entered from the one that was left, such as operations that this device is
    slow at: without a correction, a branch that always takes longer than expected would be left and chosen
    again forever. Both are corrected, half each. Most branches are entered as conditions worsen, which the
    ratio before has seen a part of: if only they were corrected, all corrections would rise with time.

    Args:
        expected_ms: latency of each branch by the manifest.
        ratio: by which it starts.

    Attributes:
        corrections: a factor for each branch.
        ratio: how many times longer than expected inferences take.
    """

    def __init__(self, expected_ms: Sequence[float], ratio: float = 1.0) -> None:
        self._expected_ms = tuple(expected_ms)
        self.corrections = [1.0] * len(self._expected_ms)
        self.ratio = ratio
        self._branch: int | None = None

    @property
    def predicted_ms(self) -> tuple[float, ...]:
        """What each branch would take now."""
        pairs = zip(self._expected_ms, self.corrections, strict=True)
        return tuple(expected * correction * self.ratio for expected, correction in pairs)

    def corrected(self, costs: Sequence[BranchCosts]) -> tuple[BranchCosts, ...]:
        """The costs of the branches, their latencies corrected."""
        pairs = zip(costs, self.corrections, strict=True)
        return tuple(replace(each, latency_ms=each.latency_ms * factor) for each, factor in pairs)

    def observe(self, inferences: npt.NDArray[Any], since: float) -> bool:
        """Take in what was measured; false where that was too little to tell anything.

        Args:
            inferences: those that may count (`runtime.statistics.INFERENCE`), in the order of time. Those of
                the last one's branch do, by their median, and of them those at batch 1, as manifests mean it.
            since: when the interval began that is asked for; an inference has to have ended in it.
        """
        single = inferences[(inferences["batch"] == 1) & (inferences["latency_ms"] > 0)]
        same = single[single["branch"] == single["branch"][-1:]]
        if len(same) < LEAST_INFERENCES or same["ended"][-1] < since:
            return False
        fresh = int(np.count_nonzero(same["ended"] >= since))
        recent = int(np.count_nonzero(same["ended"] >= same["ended"][-1] - RECENT_SECONDS))
        counted = max(LEAST_INFERENCES, min(recent, max(fresh, USUAL_INFERENCES)))
        self._measured(int(same["branch"][-1]), float(np.median(same["latency_ms"][-counted:])))
        return True

    def _measured(self, branch: int, latency_ms: float) -> None:
        if self._branch is not None and branch != self._branch:
            learned = (latency_ms / self.predicted_ms[branch]) ** _LEARNED
            self._correct(branch, learned**0.5)
            self._correct(self._branch, learned**-0.5)
        self._branch = branch
        self.ratio = latency_ms / (self._expected_ms[branch] * self.corrections[branch])

    def _correct(self, branch: int, factor: float) -> None:
        self.corrections[branch] = min(_MOST, max(1 / _MOST, self.corrections[branch] * factor))
