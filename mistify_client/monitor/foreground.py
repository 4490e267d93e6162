"""The foreground path, from measurements to the current option (paper 6)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from mistify.config.data.metric import Metric
from mistify.costs.energy import Energy
from mistify.errors import MistifyError
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.opened import Package
from mistify.package.option_kinds import local_id
from mistify_client.assembly.ladder import SliceLadder
from mistify_client.assembly.pool import SubnetPool
from mistify_client.lending.reports import LendingReport, read_reports
from mistify_client.monitor.helped_options import HELPED_MEMORY, helped_timing, newest, with_helpers
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.sensing.bottleneck import Diagnosis, FixedTime, Timing, diagnose
from mistify_client.monitor.sensing.conditions import Conditions
from mistify_client.monitor.sensing.costs import expected_on
from mistify_client.monitor.sensing.energy import EnergyModel
from mistify_client.monitor.sensing.latency import LatencyEstimator
from mistify_client.monitor.sensing.sensors import Sensor, SensorReading
from mistify_client.monitor.sensing.system import SystemFiles
from mistify_client.monitor.slices import BackgroundSlices
from mistify_client.monitor.state.state import stamp
from mistify_client.monitor.state.targets import Targets
from mistify_client.monitor.watched_version import WatchedVersion
from mistify_client.runtime.options import Option, PackageOptions, options_of
from mistify_client.runtime.statistics import Observed, observed
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.version_options import read_consistently
from mistify_client.runtime.versions import current, state_directory

#: How long a decision against helpers holds without another one: if the monitor was killed, apps decide
#: again. In seconds, and in intervals.
_LEAST_ALONE: Final = 60.0
_ALONE_INTERVALS: Final = 3


@dataclass(frozen=True)
class IntervalOutcome:
    """A decision with its inputs.

    Attributes:
        manifest: Manifest of the version that the decision is for.
        situation: The policy's input, with the previously chosen option.
        decision: The policy's decision.
        predicted_ms: Option id -> predicted milliseconds of one inference.
        outdated_at: End of the last inference of another version, in seconds of the monotonic clock, if no
            app has run this version yet. None if one has, or if no app has run an inference since the daemon
            first saw this version.
        fixed_ms: Milliseconds of an inference that do not depend on the network's size; None if unknown.
        diagnosis: Reason why inferences take longer than the target; None if they do not, or none has run.
        threads: The number of threads that latencies refer to.
        other_threads: Other numbers of threads with which apps run this version. Their inferences are not
            counted.
        not_followed: Ids of options that apps still run although another one was chosen some time ago,
            because they cannot load it.
        other_metric: The metric of subnets, if it differs from the package's: the accuracy target does not
            apply to it, and is ignored.
        pool: The pool whose subnets are the options; None if they are others.
        ladder: The ladder whose slices are options; None without one.
        timing: The most recently measured times; None before the first measurement.
        energy: The most recently measured energy of an inference; None without a meter.
        reports: The last reports of apps on the help that they get.
    """

    manifest: Manifest
    situation: Situation
    decision: Decision
    predicted_ms: Mapping[str, float]
    outdated_at: float | None
    fixed_ms: float | None
    diagnosis: Diagnosis | None
    threads: int
    other_threads: tuple[int, ...]
    not_followed: tuple[str, ...]
    other_metric: Metric | None
    pool: SubnetPool | None
    ladder: SliceLadder | None
    timing: Timing | None
    energy: Energy | None
    reports: Sequence[LendingReport]

    @property
    def switched(self) -> bool:
        """True if the option has changed."""
        return self.decision.option != self.situation.option


class _Observations(NamedTuple):
    """The processes of apps, their inferences with the version, and their reports on helpers."""

    runtimes: Sequence[Observed]
    inferences: npt.NDArray[Any]
    reports: Sequence[LendingReport]

    @property
    def alone(self) -> npt.NDArray[Any]:
        """The inferences without helpers."""
        alone: npt.NDArray[Any] = self.inferences[self.inferences["helped"] == 0]
        return alone


class _Choices(NamedTuple):
    """A version of the package, and its options with their expected latencies."""

    manifest: Manifest
    options: PackageOptions


class Foreground:
    """The loop body of the foreground path: measure, let the policy decide, set the switchboard.

    Args:
        package: The directory of the shipped package; its current version runs.
        policy: The policy that chooses the option.
        hardware: The profile that the expected latencies are for. For a package that was not made for it, the
            host's are used, and for subnets and slices those measured on this device.
        slices: Cuts slices in the background.
        files: The files of the kernel, for the control groups of apps; by default those of this system.
    """

    def __init__(
        self,
        package: Path,
        policy: Policy,
        sensor: Sensor,
        hardware: str,
        slices: BackgroundSlices,
        *,
        files: SystemFiles | None = None,
    ) -> None:
        self._package = package
        self._policy = policy
        self._sensor = sensor
        self._hardware = hardware
        self._slices = slices
        self._files = files or SystemFiles()
        self._state = state_directory(package)
        self._switchboard = Switchboard.open(self._state)
        self._version: WatchedVersion | None = None
        self._fixed = FixedTime()
        self._energy = EnergyModel()
        self._measured_at = SensorReading()
        self._is_helped = False

    def step(self, now: float, since: float, targets: Targets) -> IntervalOutcome:
        """Make one decision.

        Args:
            now: Seconds on the clock of recorded inferences, `time.monotonic`.
            since: Time of the previous decision, on the same clock.
            targets: The limits to meet.

        Returns:
            The decision and its inputs.

        Raises:
            MistifyError: Another version has become current, or the package was replaced, and the new
                manifest cannot be read; NOT_FOUND, the policy chose an option that the package does not have.
        """
        version = self._version = self._current(now)
        runtimes = observed(self._state)
        reading = self._within_groups(self._sensor(), runtimes)
        observations = _Observations(runtimes, version.inferences(runtimes, now), read_reports(self._state))
        report = newest(observations.reports, version.options.ids)
        idle = not self._measure(version, observations.alone, since, reading) and not self._follow(
            version, observations.inferences, since, report, reading
        )
        other_metric = None if targets.accuracy is None else version.other_metric
        option = version.options.at_or_default(self._switchboard.option_in(version.generation))
        situation = Situation(
            now=now,
            option=option.id,
            since=version.since,
            options=self._available(version, option),
            ratio=version.model.ratio,
            idle=idle,
            reading=reading,
            measured_at=self._measured_at,
            targets=targets if other_metric is None else targets.model_copy(update={"accuracy": None}),
            conditions=Conditions(
                version.model.computing_share,
                self._memory_for(option, reading, running=bool(runtimes)),
                self._energy.energies(version.options.options),
            ),
        )
        if self._policy.weighs_helpers:
            situation = with_helpers(situation, report, running=self._is_helped)
        decision = self._possible(self._policy.decide(situation), situation, version.options)
        self._apply(decision, situation, version, now - since)
        return self._outcome(version, observations, situation, decision, other_metric)

    @property
    def is_cut_off(self) -> bool:
        """True if the state of the package was removed, so that apps that start later cannot be switched."""
        return self._switchboard.is_removed

    def stop(self) -> None:
        """Let apps decide about helpers again."""
        self._switchboard.forbid_helpers(0)

    def _apply(
        self, decision: Decision, situation: Situation, version: WatchedVersion, interval: float
    ) -> None:
        """Make apps run the chosen option, with or without helpers; the latter for some intervals."""
        if local_id(decision.option) != local_id(situation.option):
            # Set by generation: if another version has become current in the meantime, its option is not
            # changed.
            self._switchboard.switch_in(version.generation, _place_of(decision, version.options))
        self._is_helped = decision.option != local_id(decision.option)
        is_alone = self._policy.weighs_helpers and not self._is_helped
        self._switchboard.forbid_helpers(max(_LEAST_ALONE, _ALONE_INTERVALS * interval) if is_alone else 0)
        if decision.option != situation.option:
            version.since = situation.now

    def _measure(
        self, version: WatchedVersion, inferences: npt.NDArray[Any], since: float, reading: SensorReading
    ) -> bool:
        """Update the expected latencies and energies of a version; return whether it has run since."""
        has_run = version.model.observe(inferences, since)
        timing = version.model.timing
        if has_run and timing is not None:
            self._measured_at = reading
            self._fixed.observe(timing)
            self._energy.observe(version.running, version.options.options, timing, reading.watts)
        self._slices.observe(version.manifest, version.options.ladder)
        for slice_id, latency_ms in self._slices.measured_ms().items():
            version.remeasured(slice_id, latency_ms)
        return has_run

    def _follow(
        self,
        version: WatchedVersion,
        inferences: npt.NDArray[Any],
        since: float,
        report: LendingReport | None,
        reading: SensorReading,
    ) -> bool:
        """Take the latency on this device alone from an app whose inferences ran with helpers.

        Returns:
            False if there is no such app.
        """
        if report is None or not (inferences["helped"] & (inferences["ended"] >= since)).any():
            return False
        version.model.follow(version.options.place_of(report.option), report.local_ms)
        self._measured_at = reading
        return True

    def _available(self, version: WatchedVersion, option: Option) -> tuple[Option, ...]:
        """Return the options to choose from, with corrected latencies; the current option is one of them."""
        corrected = version.model.corrected(version.options.options)
        return tuple(each for each in corrected if each.id == option.id or self._slices.is_available(each))

    def _outcome(
        self,
        version: WatchedVersion,
        observations: "_Observations",
        situation: Situation,
        decision: Decision,
        other_metric: Metric | None,
    ) -> IntervalOutcome:
        timing, fixed_ms = version.model.timing, self._fixed.fixed_ms
        helped = situation.chosen.helped
        return IntervalOutcome(
            version.manifest,
            situation,
            decision,
            {
                **dict(zip(version.options.ids, version.model.predicted_ms, strict=True)),
                **situation.conditions.helped_ms,
            },
            version.outdated_at(observations.runtimes),
            fixed_ms,
            None if timing is None or helped else diagnose(timing, fixed_ms, situation.targets.latency),
            version.options.threads,
            version.other_threads(observations.runtimes),
            version.not_followed(observations.runtimes, local_id(situation.option)),
            other_metric,
            version.options.pool,
            version.options.ladder,
            helped_timing(observations.inferences, situation) if helped else timing,
            self._energy.measured,
            observations.reports,
        )

    def _within_groups(self, reading: SensorReading, runtimes: Iterable[Observed]) -> SensorReading:
        """Return a reading whose available memory is also available to every app."""
        limits = (self._files.memory_headroom(runtime.pid) for runtime in runtimes)
        available = [each for each in (reading.memory_available, *limits) if each is not None]
        return replace(reading, memory_available=min(available, default=None))

    def _memory_for(self, chosen: Option, reading: SensorReading, *, running: bool) -> float | None:
        """Return the bytes that an option may occupy in the place of the chosen one; None if unknown."""
        if reading.memory_available is None:
            return None
        occupied = (chosen.costs.memory_bytes or 0.0) * (HELPED_MEMORY if self._is_helped else 1)
        return reading.memory_available + (occupied if running else 0.0)

    def _possible(self, decision: Decision, situation: Situation, options: PackageOptions) -> Decision:
        """Return a decision; while the chosen option still has to be made, the current one stays."""
        chosen = options.options[_place_of(decision, options)]
        if chosen.id == local_id(situation.option) or self._slices.is_ready(chosen):
            return decision
        reason = f"{decision.reason}; {situation.option} stays until {chosen.id} has been cut"
        return replace(decision, option=situation.option, reason=reason)

    def _current(self, now: float) -> WatchedVersion:
        """Return the current version; a new one starts with the ratio measured for the previous one."""
        before = self._version
        present = self._switchboard.generation, stamp(current(self._package) / MANIFEST)
        if before is not None and (before.generation, before.stamp) == present:
            return before
        # Its stamp was taken before: a manifest that is replaced in the meantime is read again.
        (manifest, options), generation = read_consistently(
            self._package, self._state, self._switchboard, self._read
        )
        # Latencies on different machines, or with different numbers of threads, are not comparable, nor are
        # ratios.
        comparable = before is not None and before.options.measured_by == options.measured_by
        ratio = before.model.ratio if before is not None and comparable else 1.0
        if not comparable:
            self._fixed, self._energy = FixedTime(), EnergyModel()
        model = LatencyEstimator([option.costs.latency_ms for option in options.options], ratio)
        # After the daemon starts, the option counts as chosen long ago, so that a better one can follow at
        # once.
        since = -inf if before is None else now
        return WatchedVersion(generation, present[1], manifest, options, model, since, noticed=now)

    def _read(self, version: Package, generation: int) -> "_Choices":
        options = options_of(version, self._state)
        return _Choices(version.manifest, expected_on(self._hardware, options, version.manifest))


def _place_of(decision: Decision, options: PackageOptions) -> int:
    try:
        return options.place_of(local_id(decision.option))
    except MistifyError as error:
        message = f'the policy chose "{decision.option}"; {error.message}'
        raise MistifyError(error.code, message) from error
