"""The current version of a package, and what apps have run of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.config.data.metric import Metric
from mistify.package.manifest import Manifest
from mistify_client.monitor.sensing.exits import expected_stages
from mistify_client.monitor.sensing.latency import LatencyEstimator
from mistify_client.runtime.options import Option, PackageOptions
from mistify_client.runtime.paged import RETRY_SECONDS
from mistify_client.runtime.statistics import INFERENCE, Observed

#: Older inferences are ignored even if there are few: conditions have changed since.
_OLDEST_SECONDS: Final = 300.0


@dataclass
class WatchedVersion:
    """The current version of the package.

    Attributes:
        generation: The switchboard's generation for this version.
        stamp: Stamp of the manifest file. It changes if the package in the directory is overwritten.
        options: The options of this version, with their expected latencies.
        since: Time at which the current option was chosen, in seconds of the monotonic clock.
        noticed: Time at which the daemon first saw this version, on the same clock.
    """

    generation: int
    stamp: tuple[int, int] | None
    manifest: Manifest
    options: PackageOptions
    model: LatencyEstimator
    since: float
    noticed: float

    @property
    def running(self) -> Option:
        """The option that ran last; the default one if none has run."""
        return self.options.at_or_default(self.model.option)

    @property
    def other_metric(self) -> Metric | None:
        """The metric of options if it is an error and the package's a share, or vice versa."""
        metric = self.options.options[0].score.metric
        return None if metric.is_share == self.manifest.metric.is_share else metric

    def remeasured(self, option: str, latency_ms: float) -> None:
        """Replace the expected latency of an option."""
        self.options = self.options.with_latency(option, latency_ms)
        self.model.expect(self.options.place_of(option), latency_ms)

    def inferences(self, runtimes: Sequence[Observed], now: float) -> npt.NDArray[Any]:
        """Return the inferences of all processes since the option was chosen, in chronological order.

        Only inferences with the number of threads of the version's measurement count.

        A process may still run the previous package. It then has another generation, or, if the package was
        overwritten in its directory, possibly another number of options.
        """
        running = self.generation, len(self.options.options), self.options.threads
        matching = [
            runtime.inferences
            for runtime in runtimes
            if (runtime.generation, len(runtime.counts), runtime.threads) == running
        ]
        inferences = np.concatenate([np.empty(0, INFERENCE), *matching])
        recent = inferences[inferences["ended"] >= max(self.since, now - _OLDEST_SECONDS)]
        return expected_stages(recent[np.argsort(recent["ended"], kind="stable")], self.options)

    def other_threads(self, runtimes: Sequence[Observed]) -> tuple[int, ...]:
        """Return the value of `IntervalOutcome.other_threads`."""
        threads = {
            runtime.threads
            for runtime in runtimes
            if runtime.generation == self.generation and len(runtime.inferences)
        }
        return tuple(sorted(threads - {self.options.threads}))

    def not_followed(self, runtimes: Sequence[Observed], wanted: str) -> tuple[str, ...]:
        """Return the value of `IntervalOutcome.not_followed`; branches need not be loaded."""
        if not self.options.paged:
            return ()
        last = [
            runtime.inferences[-1]
            for runtime in runtimes
            if runtime.generation == self.generation and len(runtime.inferences)
        ]
        chosen_at = max(self.since, self.noticed)
        places = {int(each["option"]) for each in last if each["ended"] - chosen_at > RETRY_SECONDS}
        ids = (each for place, each in enumerate(self.options.ids) if place in places)
        return tuple(each for each in ids if each != wanted)

    def outdated_at(self, runtimes: Sequence[Observed]) -> float | None:
        """Return the value of `IntervalOutcome.outdated_at`."""
        ran = [runtime for runtime in runtimes if len(runtime.inferences)]
        if any(runtime.generation == self.generation for runtime in ran):
            return None
        ended = max((float(runtime.inferences["ended"][-1]) for runtime in ran), default=-inf)
        return ended if ended >= self.noticed else None
