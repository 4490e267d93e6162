"""An app whose package has a monitor's loop, which runs in the process of the benchmark."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.device.namespaces import NamespaceLink
from mistify.parsing.validation import Settings
from mistify_client.engines.measuring import proportional_bytes
from mistify_client.monitor.foreground import Foreground, IntervalOutcome
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.sensing.sensors import DeviceSensor
from mistify_client.monitor.slices import BackgroundSlices
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import options_of
from mistify_client.runtime.statistics import INFERENCE, observed
from mistify_client.runtime.versions import open_current, state_directory

#: Seconds between two decisions.
INTERVAL: Final = 1.0

#: Seconds after which an option has been loaded, and its blocks have been stitched.
SETTLED_SECONDS: Final = 10.0


def cores() -> tuple[int, int]:
    """Return the core of the device, and that of its helper: the same one if there is no other."""
    available = sorted(os.sched_getaffinity(0))
    return available[0], available[-1]


class Chosen(Policy):
    """Runs the option that the benchmark chooses, with helpers or without.

    Attributes:
        option: Its id; None for the one that runs.
    """

    params_class = Settings
    weighs_helpers = True

    def __init__(self, params: Settings) -> None:
        """Keep the option that runs."""
        self.option: str | None = None

    def decide(self, situation: Situation) -> Decision:
        """Choose the option; see `Policy.decide`."""
        offered = [option.id for option in situation.options]
        option = self.option if self.option in offered else situation.option
        return Decision(option or situation.option, fits=True, reason="chosen by the benchmark")


class Timed(Policy):
    """Measures the processor time of the decisions of another policy.

    Attributes:
        decision_us: Microseconds of each decision.
    """

    params_class = Settings
    weighs_helpers = True

    def __init__(self, policy: Policy) -> None:
        """Decide as this policy does."""
        self._policy = policy
        self.decision_us: list[float] = []

    def decide(self, situation: Situation) -> Decision:
        """Choose the option; see `Policy.decide`."""
        before = time.thread_time()
        decision = self._policy.decide(situation)
        self.decision_us.append(1e6 * (time.thread_time() - before))
        return decision


@dataclass
class Observations:
    """What an app has run during some seconds.

    Attributes:
        inferences: An array of shape (n,) and dtype `runtime.statistics.INFERENCE`.
        memory: Bytes of the app at each decision, less those before it loaded the package.
        options: Id of the option that was chosen at each decision.
        outcome: The last decision.
    """

    inferences: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, INFERENCE))
    memory: list[float] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    outcome: IntervalOutcome | None = None

    @property
    def ms(self) -> float:
        """The mean latency of an inference."""
        return float(self.inferences["latency_ms"].mean())

    @property
    def median_ms(self) -> float:
        """The median latency of an inference."""
        return float(np.median(self.inferences["latency_ms"]))

    @property
    def bytes(self) -> float:
        """The mean memory."""
        return fmean(self.memory)

    def accuracy(self, accuracies: Mapping[str, float]) -> float:
        """Return the mean accuracy of the inferences.

        Args:
            accuracies: Id of each option, in their order -> its accuracy.
        """
        places = self.inferences["option"]
        return float(np.asarray(list(accuracies.values()))[places].mean())


class Loop:
    """An app with the loop of a monitor.

    Attributes:
        step_ms: Milliseconds of processor time of each decision with all measurements.
    """

    def __init__(
        self, package: Path, policy: Policy, process: "subprocess.Popen[str]", before: float
    ) -> None:
        journal = Journal(package.with_name(f"{package.name}-decisions.jsonl"), None)
        self._foreground = Foreground(
            package, policy, DeviceSensor(), "host", BackgroundSlices(package, journal)
        )
        self._state = state_directory(package)
        self._process, self._before = process, before
        self._seen = time.monotonic()
        self.step_ms: list[float] = []

    def run(self, seconds: float, targets: Targets | None = None) -> Observations:
        """Let the app run for some seconds, with a decision in each interval.

        Args:
            targets: The limits; none by default.
        """
        observations = Observations()
        parts = []
        ends = time.monotonic() + seconds
        while (now := time.monotonic()) < ends:
            time.sleep(min(INTERVAL, ends - now))
            before = time.thread_time()
            now = time.monotonic()
            outcome = self._foreground.step(now, now - INTERVAL, targets or Targets())
            self.step_ms.append(1e3 * (time.thread_time() - before))
            observations.outcome = outcome
            observations.options.append(outcome.decision.option)
            observations.memory.append((proportional_bytes(self._process.pid) or 0.0) - self._before)
            parts.append(self._new())
        observations.inferences = np.concatenate([observations.inferences, *parts])
        return observations

    def _new(self) -> npt.NDArray[Any]:
        """Return the inferences since the last call."""
        inferences = np.concatenate(
            [np.empty(0, INFERENCE), *(each.inferences for each in observed(self._state))]
        )
        new = inferences[inferences["ended"] > self._seen]
        self._seen = float(new["ended"].max(initial=self._seen))
        return new


@contextmanager
def looping(link: NamespaceLink, package: Path, policy: Policy, helper: Sequence[str] = ()) -> Iterator[Loop]:
    """Run an app on the device during the block.

    Args:
        helper: The address of a helper, and the file with its token.
    """
    module = [sys.executable, "-m", "benchmarks.device.context_app", str(package), *helper]
    process = subprocess.Popen(
        [*link.inside(0, cores()[0]), *module],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if process.stdout is None or not (line := process.stdout.readline()):
            raise RuntimeError("the app has ended")
        yield Loop(package, policy, process, float(line))
    finally:
        process.kill()
        process.wait()


def measured_median(observations: Observations, seconds: float) -> float:
    """Return the median milliseconds of the inferences of the last seconds."""
    inferences = observations.inferences
    return float(median(inferences["latency_ms"][inferences["ended"] > inferences["ended"][-1] - seconds]))


def option_ids(package: Path) -> tuple[str, ...]:
    """Return the ids of the options of a package, in their order."""
    version = open_current(package)
    return options_of(version, state_directory(package)).ids
