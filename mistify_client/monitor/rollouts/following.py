"""Follows the roll-outs of the server: installs the packages that it wants, and takes them back."""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from mistify.errors import Problem, invalid_config
from mistify.package.manifest import Manifest
from mistify.rollouts import DeviceRollouts, InstallationPhase, Instruction, WantedPackage
from mistify_client.monitor.config import FleetConfig, RolloutConfig
from mistify_client.monitor.foreground import IntervalOutcome
from mistify_client.monitor.installed import runs
from mistify_client.monitor.replacement.access import RETRY, ServerAccess, passes, permanent, tells_nothing
from mistify_client.monitor.replacement.candidate import read_examples, try_candidate
from mistify_client.monitor.replacement.steps import TrialRunner
from mistify_client.monitor.rollouts.ledger import Installation, InstallationLedger
from mistify_client.monitor.rollouts.steps import InstallationSteps
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.paged import RETRY_SECONDS
from mistify_client.runtime.trust import Trust

_ABOUT: Final = "roll-out"

#: Number of the last intervals with inferences whose median is the latency of the current package.
_INTERVALS: Final = 240

#: Seconds after which a package that apps could have loaded, and have not, is rolled back.
_UNUSED_SECONDS: Final = RETRY_SECONDS + 60.0


def check_rollouts(package: Path, config: RolloutConfig) -> None:
    """Check that roll-outs are allowed for this package, and that their examples fit it.

    Raises:
        MistifyError: INVALID_CONFIG, they are for another package; INVALID_DATASET, the examples do not fit.
    """
    shipped = Manifest.load(package)
    if config.package != shipped.goal:
        expected = f'"{shipped.goal}", the goal of {package}'
        fix = "name this package if the server may replace it, or remove the table"
        raise invalid_config([Problem("fleet.rollouts.package", f'"{config.package}"', expected, fix)])
    if config.examples is not None:
        read_examples(config.examples, shipped)


class RolloutFollower:
    """Background thread that works on one installation at a time; the phase is stored on disk.

    Args:
        package: The directory of the shipped package.
        state: The daemon's files.
        server: The server whose roll-outs these are.
        config: Settings of roll-outs.
        journal: The log for phases and problems.
        retry: The delay after a failure; the number of attempts is not limited.
        run_trial: Tries a package next to the current one.
        trust: The keys by which a package has to be signed; None for any.
    """

    def __init__(
        self,
        package: Path,
        state: MonitorState,
        server: FleetConfig,
        config: RolloutConfig,
        journal: Journal,
        *,
        trust: Trust | None = None,
        retry: Backoff = RETRY,
        run_trial: TrialRunner = try_candidate,
    ) -> None:
        self._package = package
        self._name = config.package
        self._journal = journal
        self._access = ServerAccess(server, PortingClient, retry)
        self._ledger = InstallationLedger(state.rollout)
        self._steps = InstallationSteps(
            package,
            state.rollout_candidate,
            server,
            config,
            connect=self._access.connected,
            measured_ms=lambda: self._measured_ms,
            installed=lambda: self._ledger.installed,
            trust=trust,
            run_trial=run_trial,
        )
        self._lock = threading.Lock()  # the ledger is changed by this thread, and by the one that reports
        self._thread: threading.Thread | None = None
        self._measured: deque[float] = deque(maxlen=_INTERVALS)
        self._measured_of: tuple[str, str] | None = None
        self._outdated_since: float | None = None

    @property
    def installation(self) -> Installation | None:
        """The last installation; None if there was none."""
        return self._ledger.installation

    @property
    def report(self) -> DeviceRollouts:
        """The part of the next report to the server that decides on roll-outs to this device.

        It names the package that may be replaced, its latency, and the phase of the last installation.
        """
        installation = self.installation
        return DeviceRollouts(
            self._name, self._measured_ms, None if installation is None else installation.reported
        )

    def observe(self, outcome: IntervalOutcome) -> None:
        """Note the latency of the current package, and work on the installation; called in each interval."""
        manifest, timing = outcome.manifest, outcome.timing
        running = (manifest.job, manifest.goal)
        if running != self._measured_of:
            self._measured.clear()
            self._measured_of = running
        if timing is not None and not outcome.situation.idle:
            self._measured.append(timing.latency_ms)
        self._judge_unused(outcome.outdated_at, manifest)
        self._resume()

    def follow(self, instruction: Instruction) -> None:
        """Begin what the server wants, unless it has begun; called with each response to a report."""
        with self._lock:
            own = self.installation
            if instruction.withdrawn is not None:
                if own is not None and own.rollout == instruction.withdrawn and own.phase.begun:
                    with self._journal.noting_problems(_ABOUT):
                        self._advance(own.at(InstallationPhase.ROLLING_BACK, "the roll-out was stopped"))
            elif instruction.wanted is not None and self._is_new(instruction.wanted):
                with self._journal.noting_problems(_ABOUT):
                    self._advance(self._begun(instruction.wanted))

    def stop(self) -> None:
        """Stop the thread after a running trial or installation; the next daemon continues the work."""
        self._access.stop()
        if self._thread is not None:
            self._thread.join()

    @property
    def _measured_ms(self) -> float | None:
        measured = tuple(self._measured)  # the other thread may add to it
        return median(measured) if measured else None

    def _is_new(self, wanted: WantedPackage) -> bool:
        """Check whether a package is to be installed.

        A server that was restored from a backup may want one again that it had stopped.
        """
        own = self.installation
        if own is None or own.phase is InstallationPhase.ROLLED_BACK:
            return True
        return own.rollout != wanted.rollout and own.phase is not InstallationPhase.ROLLING_BACK

    def _begun(self, wanted: WantedPackage) -> Installation:
        """Return the installation of a package at its beginning, or at its end if it runs already."""
        installation = Installation(
            rollout=wanted.rollout,
            job=wanted.job_id,
            goal=wanted.goal_id,
            digest=wanted.digest,
            reason="wanted by the server",
            before_ms=self._measured_ms,
        )
        if runs(self._package, wanted.job_id, wanted.goal_id):
            return installation.at(InstallationPhase.INSTALLED, "it runs already")
        return installation

    def _judge_unused(self, outdated_at: float | None, manifest: Manifest) -> None:
        """Roll back a package that apps cannot load: they run inferences, but another version.

        Args:
            outdated_at: End of the last inference of another version, see `IntervalOutcome`.
        """
        with self._lock:
            own = self.installation
            if outdated_at is None or own is None or not _is_of(manifest, own):
                self._outdated_since = None
                return
            if self._outdated_since is None:
                self._outdated_since = outdated_at
            if outdated_at - self._outdated_since < _UNUSED_SECONDS:
                return
            error = "no app has loaded it: those that run inferences use another version; their logs say why"
            with self._journal.noting_problems(_ABOUT):
                self._advance(own.at(InstallationPhase.ROLLING_BACK, error, error=error))

    def _resume(self) -> None:
        """Start the thread if it has work and is not running."""
        own = self.installation
        if own is None or self._steps.of(own.phase) is None:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="mistify-rollout", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        failures = 0
        while not self._access.stopped:
            with self._journal.noting_problems(_ABOUT) as problems:
                own = self._counted()
                step = None if own is None else self._steps.of(own.phase)
                if own is None or step is None:
                    return
                following = self._apply(step, own, failures)
                with self._lock:
                    if self.installation == own:  # otherwise, the server has changed its mind meanwhile
                        self._advance(following)
            failures = failures + 1 if problems else 0
            if problems:
                self._access.wait(failures)

    def _counted(self) -> Installation | None:
        """Return the installation; a trial is counted before it begins, as it may crash the daemon."""
        with self._lock:
            own = self.installation
            if own is not None and own.phase is InstallationPhase.VALIDATING:
                own = own.model_copy(update={"trials": own.trials + 1})
                self._ledger.save(own)
            return own

    def _take_back_count(self, installation: Installation) -> None:
        """Take back the count of a trial that did not crash the daemon, but could not take place."""
        with self._lock:
            if self.installation == installation and installation.phase is InstallationPhase.VALIDATING:
                self._ledger.save(installation.model_copy(update={"trials": installation.trials - 1}))

    def _apply(
        self, step: Callable[[Installation], Installation], installation: Installation, failures: int
    ) -> Installation:
        """Return the installation after a step; failed if the step failed permanently.

        A package is rolled back however long it takes to write.

        Args:
            failures: The number of consecutive failures before.
        """
        rolling_back = installation.phase is InstallationPhase.ROLLING_BACK
        try:
            return step(installation)
        except Exception as error:  # no failure of a package or a server may end the daemon
            if not self._access.stopped and not passes(error, 0 if rolling_back else failures):
                return self._steps.failed(installation, permanent(error, failures))
            if self._access.stopped or tells_nothing(error):
                self._take_back_count(installation)
            if self._access.stopped:
                return installation
            raise

    def _advance(self, installation: Installation) -> None:
        """Save and log an installation in its next phase; the caller holds the lock."""
        if installation == self.installation:
            return
        self._ledger.save(installation)
        self._journal.note(
            "rollout",
            installation.reason,
            rollout=installation.rollout,
            job=installation.job,
            goal=installation.goal,
            phase=installation.phase.value,
        )


def _is_of(manifest: Manifest, installation: Installation) -> bool:
    """Return True if an installation is complete, and this is its package."""
    is_its_goal = (manifest.job, manifest.goal) == (installation.job, installation.goal)
    return is_its_goal and installation.phase is InstallationPhase.INSTALLED
