"""The foreground path: from what is measured to the branch that runs (paper 6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.costs.catalogue import HOST
from mistify.package.manifest import MANIFEST, Manifest
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.sensing.costs import BranchCosts, expected_costs, made_for
from mistify_client.monitor.sensing.latency import LatencyEstimator
from mistify_client.monitor.sensing.sensors import Sensor, SensorReading
from mistify_client.monitor.state.state import stamp
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.statistics import INFERENCE, Observed, observed
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, state_directory

#: Older inferences say nothing of the present, however seldom there are any.
_OLDEST_SECONDS: Final = 300.0


@dataclass(frozen=True)
class IntervalOutcome:
    """One decision, with what it was made of.

    Attributes:
        manifest: of the version that was decided about.
        situation: what the policy was told, with the branch that ran.
        decision: what it decided.
        predicted_ms: what each branch would take.
        outdated_at: when the last inference of another version ended, where no model has run this one; None
            where one has, or none has inferred since this one was noticed.
    """

    manifest: Manifest
    situation: Situation
    decision: Decision
    predicted_ms: tuple[float, ...]
    outdated_at: float | None

    @property
    def switched(self) -> bool:
        """Whether another branch runs from now on."""
        return self.decision.branch != self.situation.branch


@dataclass
class _Version:
    """The version of the package that is decided about.

    Attributes:
        generation: the switchboard's.
        stamp: of the manifest's file; another one where the package was replaced in its place.
        hardware: the profile whose latencies are expected.
        since: when the branch that runs was chosen.
        noticed: when it was first seen to be current.
    """

    generation: int
    stamp: tuple[int, int] | None
    manifest: Manifest
    hardware: str
    costs: tuple[BranchCosts, ...]
    model: LatencyEstimator
    since: float
    noticed: float


class Foreground:
    """Lets a policy decide, and sets the switchboard.

    Args:
        package: the directory of the package that was shipped; its current version is what runs.
        policy: decides.
        sensor: reads the device.
        hardware: the profile whose latencies are expected; the host's of a package not made for it.
    """

    def __init__(self, package: Path, policy: Policy, sensor: Sensor, hardware: str) -> None:
        self._package = package
        self._policy = policy
        self._sensor = sensor
        self._hardware = hardware
        self._state = state_directory(package)
        self._switchboard = Switchboard.open(self._state)
        self._version: _Version | None = None
        self._measured_at = SensorReading()

    def step(self, now: float, since: float, targets: Targets) -> IntervalOutcome:
        """Decide once.

        Args:
            now: seconds of the clock of the inferences, `time.monotonic`.
            since: when the decision before was made.
            targets: to keep to.

        Raises:
            MistifyError: another version was made current, or the package replaced, and cannot be read.
        """
        version = self._version = self._current(now)
        reading = self._sensor()
        runtimes = observed(self._state)
        idle = not version.model.observe(_inferences(runtimes, version, now), since)
        if not idle:
            self._measured_at = reading
        situation = Situation(
            now=now,
            branch=self._branch(version),
            since=version.since,
            branches=version.model.corrected(version.costs),
            ratio=version.model.ratio,
            idle=idle,
            reading=reading,
            measured_at=self._measured_at,
            targets=targets,
        )
        decision = self._policy.decide(situation)
        if decision.branch != situation.branch:
            # Should another version be current by now, its branches are others and stay as they are.
            self._switchboard.switch_in(version.generation, decision.branch)
            version.since = now
        outdated_at = _outdated_at(runtimes, version)
        return IntervalOutcome(version.manifest, situation, decision, version.model.predicted_ms, outdated_at)

    def _current(self, now: float) -> _Version:
        """The version that is current, under the conditions that the one before has met."""
        generation, before, directory = self._switchboard.generation, self._version, current(self._package)
        found = stamp(directory / MANIFEST)
        if before is not None and (before.generation, before.stamp) == (generation, found):
            return before
        manifest = Manifest.load(directory)
        hardware = self._hardware if made_for(manifest, self._hardware) else HOST.name
        costs = expected_costs(manifest, hardware)
        # Ratios to what different machines take do not compare.
        ratio = before.model.ratio if before is not None and before.hardware == hardware else 1.0
        model = LatencyEstimator([each.latency_ms for each in costs], ratio)
        # When the daemon starts, the branch is as old as can be: nothing speaks against a better one.
        since = -inf if before is None else now
        return _Version(generation, found, manifest, hardware, costs, model, since, noticed=now)

    def _branch(self, version: _Version) -> int:
        branch = self._switchboard.branch_in(version.generation)
        return branch if 0 <= branch < len(version.costs) else version.manifest.default_branch


def _inferences(runtimes: Sequence[Observed], version: _Version, now: float) -> npt.NDArray[Any]:
    """Those of all processes, since the branch was chosen, in the order of time.

    A process may still run the package before: one of another generation, or one that was replaced in its
    place, which is told by the number of branches.
    """
    running = version.generation, len(version.costs)
    found = [
        runtime.inferences for runtime in runtimes if (runtime.generation, len(runtime.counts)) == running
    ]
    inferences = np.concatenate([np.empty(0, INFERENCE), *found])
    counting = inferences[inferences["ended"] >= max(version.since, now - _OLDEST_SECONDS)]
    return counting[np.argsort(counting["ended"], kind="stable")]


def _outdated_at(runtimes: Sequence[Observed], version: _Version) -> float | None:
    """What `IntervalOutcome.outdated_at` says."""
    ran = [runtime for runtime in runtimes if len(runtime.inferences)]
    if any(runtime.generation == version.generation for runtime in ran):
        return None
    ended = max((float(runtime.inferences["ended"][-1]) for runtime in ran), default=-inf)
    return ended if ended >= version.noticed else None
