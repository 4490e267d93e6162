"""The foreground path, from measurements to the current option (paper 6)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mistify.config.data.metric import Metric
from mistify.costs.energy import Energy
from mistify.errors import MistifyError
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.opened import Package
from mistify_client.assembly.ladder import SliceLadder
from mistify_client.assembly.pool import SubnetPool
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.sensing.bottleneck import Diagnosis, FixedTime, Timing, diagnose
from mistify_client.monitor.sensing.conditions import Conditions
from mistify_client.monitor.sensing.costs import expected_on
from mistify_client.monitor.sensing.energy import EnergyModel
from mistify_client.monitor.sensing.exits import expected_stages
from mistify_client.monitor.sensing.latency import LatencyEstimator
from mistify_client.monitor.sensing.sensors import Sensor, SensorReading
from mistify_client.monitor.sensing.system import SystemFiles
from mistify_client.monitor.slices import BackgroundSlices
from mistify_client.monitor.state.state import stamp
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import Option, PackageOptions, options_of
from mistify_client.runtime.paged import RETRY_SECONDS
from mistify_client.runtime.statistics import INFERENCE, Observed, observed
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, read_consistently, state_directory

#: Older inferences are ignored even if there are few: conditions have changed since.
_OLDEST_SECONDS: Final = 300.0


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

    @property
    def switched(self) -> bool:
        """True if the option has changed."""
        return self.decision.option != self.situation.option


@dataclass
class _Version:
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

    def remeasured(self, option: str, latency_ms: float) -> None:
        """Replace the expected latency of an option."""
        self.options = self.options.with_latency(option, latency_ms)
        self.model.expect(self.options.place_of(option), latency_ms)


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
        self._version: _Version | None = None
        self._fixed = FixedTime()
        self._energy = EnergyModel()
        self._measured_at = SensorReading()

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
        idle = not self._measure(version, _inferences(runtimes, version, now), since, reading)
        other_metric = None if targets.accuracy is None else _other_metric(version)
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
                _memory_for(option, reading, running=bool(runtimes)),
                self._energy.energies(version.options.options),
            ),
        )
        decision = self._possible(self._policy.decide(situation), situation, version.options)
        if decision.option != situation.option:
            # Set by generation: if another version has become current in the meantime, its option is not
            # changed.
            self._switchboard.switch_in(version.generation, _place_of(decision, version.options))
            version.since = now
        return self._outcome(version, runtimes, situation, decision, other_metric)

    def _measure(
        self, version: _Version, inferences: npt.NDArray[Any], since: float, reading: SensorReading
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

    def _available(self, version: _Version, option: Option) -> tuple[Option, ...]:
        """Return the options to choose from, with corrected latencies; the current option is one of them."""
        corrected = version.model.corrected(version.options.options)
        return tuple(each for each in corrected if each.id == option.id or self._slices.is_available(each))

    def _outcome(
        self,
        version: _Version,
        runtimes: Sequence[Observed],
        situation: Situation,
        decision: Decision,
        other_metric: Metric | None,
    ) -> IntervalOutcome:
        timing, fixed_ms = version.model.timing, self._fixed.fixed_ms
        return IntervalOutcome(
            version.manifest,
            situation,
            decision,
            dict(zip(version.options.ids, version.model.predicted_ms, strict=True)),
            _outdated_at(runtimes, version),
            fixed_ms,
            None if timing is None else diagnose(timing, fixed_ms, situation.targets.latency),
            version.options.threads,
            _other_threads(runtimes, version),
            _not_followed(runtimes, version, situation.option),
            other_metric,
            version.options.pool,
            version.options.ladder,
            timing,
            self._energy.measured,
        )

    def _within_groups(self, reading: SensorReading, runtimes: Iterable[Observed]) -> SensorReading:
        """Return a reading whose available memory is also available to every app."""
        limits = (self._files.memory_headroom(runtime.pid) for runtime in runtimes)
        available = [each for each in (reading.memory_available, *limits) if each is not None]
        return replace(reading, memory_available=min(available, default=None))

    def _possible(self, decision: Decision, situation: Situation, options: PackageOptions) -> Decision:
        """Return a decision; while the chosen option still has to be made, the current one stays."""
        chosen = options.options[_place_of(decision, options)]
        if chosen.id == situation.option or self._slices.is_ready(chosen):
            return decision
        reason = f"{decision.reason}; {situation.option} stays until {chosen.id} has been cut"
        return replace(decision, option=situation.option, reason=reason)

    def _current(self, now: float) -> _Version:
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
        return _Version(generation, present[1], manifest, options, model, since, noticed=now)

    def _read(self, version: Package, generation: int) -> "_Choices":
        options = options_of(version, self._state)
        return _Choices(version.manifest, expected_on(self._hardware, options, version.manifest))


def _memory_for(chosen: Option, reading: SensorReading, *, running: bool) -> float | None:
    """Return the bytes that an option may occupy in the place of the chosen one; None if unknown."""
    if reading.memory_available is None:
        return None
    return reading.memory_available + ((chosen.costs.memory_bytes or 0.0) if running else 0.0)


def _place_of(decision: Decision, options: PackageOptions) -> int:
    try:
        return options.place_of(decision.option)
    except MistifyError as error:
        message = f'the policy chose "{decision.option}"; {error.message}'
        raise MistifyError(error.code, message) from error


def _inferences(runtimes: Sequence[Observed], version: _Version, now: float) -> npt.NDArray[Any]:
    """Return the inferences of all processes since the option was chosen, in chronological order.

    Only inferences with the number of threads of the version's measurement count.

    A process may still run the previous package. It then has another generation, or, if the package was
    overwritten in its directory, possibly another number of options.
    """
    running = version.generation, len(version.options.options), version.options.threads
    matching = [
        runtime.inferences
        for runtime in runtimes
        if (runtime.generation, len(runtime.counts), runtime.threads) == running
    ]
    inferences = np.concatenate([np.empty(0, INFERENCE), *matching])
    recent = inferences[inferences["ended"] >= max(version.since, now - _OLDEST_SECONDS)]
    return expected_stages(recent[np.argsort(recent["ended"], kind="stable")], version.options)


def _other_threads(runtimes: Sequence[Observed], version: _Version) -> tuple[int, ...]:
    """Return the value of `IntervalOutcome.other_threads`."""
    threads = {
        runtime.threads
        for runtime in runtimes
        if runtime.generation == version.generation and len(runtime.inferences)
    }
    return tuple(sorted(threads - {version.options.threads}))


def _not_followed(runtimes: Sequence[Observed], version: _Version, wanted: str) -> tuple[str, ...]:
    """Return the value of `IntervalOutcome.not_followed`; branches need not be loaded."""
    if not version.options.paged:
        return ()
    last = [
        runtime.inferences[-1]
        for runtime in runtimes
        if runtime.generation == version.generation and len(runtime.inferences)
    ]
    chosen_at = max(version.since, version.noticed)
    places = {int(each["option"]) for each in last if each["ended"] - chosen_at > RETRY_SECONDS}
    ids = (each for place, each in enumerate(version.options.ids) if place in places)
    return tuple(each for each in ids if each != wanted)


def _other_metric(version: _Version) -> Metric | None:
    """Return the metric of options if it is an error and the package's a share, or vice versa."""
    metric = version.options.options[0].score.metric
    return None if metric.is_share == version.manifest.metric.is_share else metric


def _outdated_at(runtimes: Sequence[Observed], version: _Version) -> float | None:
    """Return the value of `IntervalOutcome.outdated_at`."""
    ran = [runtime for runtime in runtimes if len(runtime.inferences)]
    if any(runtime.generation == version.generation for runtime in ran):
        return None
    ended = max((float(runtime.inferences["ended"][-1]) for runtime in ran), default=-inf)
    return ended if ended >= version.noticed else None
