"""The daemon: a loop that reads sensors, decides, sets the switchboard and logs changes (paper 6)."""

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mistify.costs.catalogue import HOST
from mistify.errors import MistifyError, with_outcome
from mistify.files.writing import write_json
from mistify.package.manifest import Manifest
from mistify_client.adapting.storage import AdaptationState
from mistify_client.monitor.adapting import BackgroundAdaptation
from mistify_client.monitor.config import MonitorConfig, goal_template
from mistify_client.monitor.decisions import DecisionLog
from mistify_client.monitor.fleet import FleetReports
from mistify_client.monitor.foreground import Foreground, IntervalOutcome
from mistify_client.monitor.lending import LendingLog
from mistify_client.monitor.replacement.background import BackgroundReplacement
from mistify_client.monitor.replacement.candidate import read_examples
from mistify_client.monitor.replacement.goals import Shortfall
from mistify_client.monitor.reporting import Reporting
from mistify_client.monitor.rollouts.following import RolloutFollower, check_rollouts
from mistify_client.monitor.searching import SubnetSearch
from mistify_client.monitor.sensing.sensors import DeviceSensor, Sensor
from mistify_client.monitor.signals import SignalWaiter
from mistify_client.monitor.slices import BackgroundSlices
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.monitor.state.targets import LiveTargets
from mistify_client.monitor.status import (
    adaptation_status,
    replacement_status,
    rollout_status,
    status,
    targets,
)
from mistify_client.monitor.traces.writing import TraceWriter
from mistify_client.runtime.samples import remove_samples
from mistify_client.runtime.trust import require_trusted
from mistify_client.runtime.versions import current, state_directory

#: The status is written after each change, and otherwise at this interval to limit wear of flash memory.
_STATUS_SECONDS: Final = 5.0


class Monitor:
    """The monitor of one package, for use by one thread; background path and reports have their own threads.

    Args:
        package: The directory of the shipped package.
        load_config: Reads the config; called again by `reload`.
        journal: The log for changes and problems.
        trace: The record of conditions and decisions; None for no record.
        clock: The clock of the recorded inferences, in seconds.
    """

    def __init__(
        self,
        package: Path,
        load_config: Callable[[], MonitorConfig],
        journal: Journal,
        *,
        trace: TraceWriter | None = None,
        sensor: Sensor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._package = package
        self._load_config = load_config
        self._journal = journal
        self._trace = trace
        self._sensor = sensor or DeviceSensor()
        self.clock = clock
        self._state = MonitorState.of(package)
        self._background: BackgroundReplacement | None = None
        self._reporting: Reporting | None = None
        self._fleet: FleetReports | None = None
        self._follower: RolloutFollower | None = None
        self._adaptation: BackgroundAdaptation | None = None
        self._search = SubnetSearch(package, self._state.search, journal)
        self._slices = BackgroundSlices(package, journal, clock)
        self._decisions = DecisionLog(journal)
        self._lending = LendingLog(journal)
        self._outcome: IntervalOutcome | None = None
        self._before: float | None = None
        self._short_since: float | None = None
        self._written = (0, float("-inf"))
        self._configure(load_config())

    @property
    def interval(self) -> float:
        """Return the seconds between two steps."""
        return self._config.interval

    @property
    def _adaptation_state(self) -> AdaptationState | None:
        return None if self._adaptation is None else self._adaptation.state

    def step(self) -> None:
        """Make one decision; problems are logged, not raised: no package or plug-in may end the daemon."""
        now = self.clock()
        since = now - self.interval if self._before is None else self._before
        self._before = now
        self._refresh_targets()
        cut_off = f"{self._state.directory.parent} was removed: restart the monitor, and the apps"
        self._journal.problem("state", cut_off if self._foreground.is_cut_off else None)
        try:
            outcome = self._foreground.step(now, since, self._targets.current)
        except Exception as error:
            self._journal.problem("package", _described(error))
        else:
            self._journal.problem("package", None)
            try:
                self._act_on(now, outcome)
            except Exception as error:
                self._journal.problem("decision", _described(error))
            else:
                self._journal.problem("decision", None)
        self._write_status(now)

    def reload(self) -> None:
        """Reload the config; if it is invalid, log the problem and keep the previous one."""
        try:
            self._configure(self._load_config())
        except (MistifyError, OSError) as error:
            self._journal.problem("config", _kept(error))
        else:
            self._journal.problem("config", None)
            self._journal.note("config", "read again")
            if self._trace is not None:
                self._trace.begin()

    def close(self) -> None:
        """Stop the search for subnets and the threads; the next daemon continues the threads' work.

        Until then, apps decide about helpers.
        """
        self._search.stop()
        self._slices.stop()
        self._foreground.stop()
        self._stop_threads()
        if self._trace is not None:
            self._trace.close()

    def _stop_threads(self) -> None:
        for path in (self._background, self._reporting, self._fleet, self._follower, self._adaptation):
            if path is not None:
                path.stop()

    def _configure(self, config: MonitorConfig) -> None:
        trust, asks, reports, fleet = config.trust, config.replacement, config.reporting, config.fleet
        require_trusted(self._package, trust)
        template = None if asks is None else goal_template(asks)
        if asks is not None and asks.examples is not None:
            # Report unsuitable examples now, not when a new package is compared on them.
            read_examples(asks.examples, Manifest.load(self._package))
        if fleet is not None and fleet.rollouts is not None:
            check_rollouts(self._package, fleet.rollouts)
        hardware = HOST.name if template is None else template.hardware_name
        foreground = Foreground(self._package, config.make_policy(), self._sensor, hardware, self._slices)
        self._stop_threads()
        self._config, self._foreground, self._search.config = config, foreground, config.search
        self._background = self._reporting = self._fleet = self._follower = self._adaptation = None
        self._targets = LiveTargets(config.targets, self._state.targets)
        if asks is not None and template is not None:
            self._background = BackgroundReplacement(
                self._package, self._state, asks, template, self._journal, trust=trust
            )
        if reports is not None:
            path = self._state.reports
            self._reporting = Reporting(self._package, path, reports, self._journal, trust=trust)
        if fleet is not None:
            if fleet.rollouts is not None:
                self._follower = RolloutFollower(
                    self._package, self._state, fleet, fleet.rollouts, self._journal, trust=trust
                )
            self._fleet = FleetReports(fleet, self._journal, self._follower)
        if config.adaptation is None:
            remove_samples(state_directory(self._package))  # of a daemon that was killed
        else:
            self._adaptation = BackgroundAdaptation(self._package, config.adaptation.every, self._journal)

    def _act_on(self, now: float, outcome: IntervalOutcome) -> None:
        """Log a decision, and let the threads work on what follows from it."""
        self._decisions.observe(outcome)
        self._lending.observe(outcome.reports)
        self._outcome = outcome
        self._record(outcome)
        self._consider_replacement(now, outcome)
        if self._reporting is not None:
            self._reporting.observe(now, outcome.manifest, outcome.situation.reading.cpu_available)
        if self._follower is not None:
            self._follower.observe(outcome)
        if self._fleet is not None:
            self._fleet.observe(now, outcome, self._decisions.last_switch, self._adaptation_state)

    def _refresh_targets(self) -> None:
        before = self._targets.current
        try:
            if not self._targets.refresh():
                return
        except MistifyError as error:
            self._journal.problem("targets", _kept(error))
            return
        self._journal.problem("targets", None)
        if self._targets.current != before:
            self._journal.note("targets", "changed by mistify target", **targets(self._targets.current))

    def _record(self, outcome: IntervalOutcome) -> None:
        if self._trace is None:
            return
        try:
            self._trace.write(outcome)
        except OSError as error:
            self._journal.problem("trace", str(error))
        else:
            self._journal.problem("trace", None)

    def _consider_search(self, now: float, outcome: IntervalOutcome) -> bool:
        """Search for other subnets if none has met the targets for a while.

        Returns:
            True while the request for a new package has to wait for the search.
        """
        searching, fits = self._search.goes_on(now), outcome.decision.fits
        if fits:
            self._short_since = None
        elif self._short_since is None or searching:  # new subnets get as much time as the previous ones
            self._short_since = now
        short_since = self._short_since
        return short_since is not None and (searching or self._search.consider(outcome, now - short_since))

    def _consider_replacement(self, now: float, outcome: IntervalOutcome) -> None:
        """Request a new package if no option has met the targets for a while, but a smaller one would."""
        fits, situation = outcome.decision.fits, outcome.situation
        other_subnets_first = self._consider_search(now, outcome)
        background = self._background
        if background is None or self._config.replacement is None:
            return
        if not situation.idle:
            background.fastest_ms = min(outcome.predicted_ms.values())
            background.judge(now, fits)
            short_since = None if other_subnets_first else self._short_since
            if short_since is not None and now - short_since >= self._config.replacement.after:
                shortfall = Shortfall(
                    situation.targets, situation.ratio, background.fastest_ms, outcome.fixed_ms or 0.0
                )
                if not shortfall.too_slow or outcome.diagnosis is None or outcome.diagnosis.smaller_helps:
                    background.ask(shortfall, outcome.manifest)
        elif outcome.outdated_at is not None:
            background.judge_unused(outcome.outdated_at)
        background.resume()

    def _write_status(self, now: float) -> None:
        noted, (then_noted, then) = self._journal.noted, self._written
        if self._outcome is None or (noted == then_noted and now - then < _STATUS_SECONDS):
            return
        replacement = None if self._background is None else self._background.replacement
        try:
            content = {
                "pid": os.getpid(),
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "version": str(current(self._package)),
                **status(self._outcome),
                "searched_ms": self._search.budget_ms,
                "cutting": self._slices.cutting,
                "replacement": replacement_status(replacement),
                "rollout": rollout_status(None if self._follower is None else self._follower.installation),
                "adaptation": adaptation_status(self._adaptation_state),
                "lending": [report.model_dump(mode="json") for report in self._outcome.reports],
                "problems": self._journal.problems,
                "last": list(self._journal.last),
            }
            write_json(self._state.status, content)
        except (MistifyError, OSError) as error:
            self._journal.problem("status file", str(error))
        else:
            self._written = noted, now
            self._journal.problem("status file", None)


def _described(error: Exception) -> str:
    """Return an error for the log; one that nobody expected, such as that of a plug-in, with its type."""
    expected = isinstance(error, MistifyError | OSError)
    return str(error) if expected else f"{type(error).__name__}: {error}"


def _kept(error: MistifyError | OSError) -> str:
    """Return an error in changed settings for the log: the daemon goes on with the earlier ones."""
    return str(
        with_outcome(error, "the earlier settings apply") if isinstance(error, MistifyError) else error
    )


def run(monitor: Monitor, journal: Journal, wait: SignalWaiter) -> None:
    """Run the monitor's steps until a signal ends it.

    Args:
        monitor: The monitor; it is closed at the end.
        journal: The log, in which the signal is noted.
        wait: Waits for a signal between steps.
    """
    try:
        while True:
            started = monitor.clock()
            monitor.step()
            match wait(max(0.0, started + monitor.interval - monitor.clock())):
                case None:
                    continue
                case signal.SIGHUP:
                    monitor.reload()
                case ending:
                    journal.note("stopped", f"by {ending.name}")
                    return
    finally:
        monitor.close()
