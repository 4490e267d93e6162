"""Steps of the installation of a roll-out's package, one for each phase; interrupted ones are repeated."""

import shutil
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.package.opened import Package
from mistify.parsing.quantities import format_time
from mistify.rollouts import InstallationPhase
from mistify_client.monitor.config import FleetConfig, RolloutConfig
from mistify_client.monitor.installed import install_candidate, take_back
from mistify_client.monitor.replacement.candidate import try_candidate
from mistify_client.monitor.replacement.steps import TrialRunner
from mistify_client.monitor.rollouts.ledger import Installation
from mistify_client.origin import note_token_file
from mistify_client.rpc.porting import PortingClient
from mistify_client.runtime.trust import Trust, check_trusted
from mistify_client.runtime.versions import state_directory

#: A trial may crash the daemon or fail to read the package; more trials would fail in the same way.
MOST_TRIALS: Final = 3


class InstallationSteps:
    """Steps of an installation; each returns it in its next phase.

    A step raises `MistifyError` if the server is unreachable or the package is unusable, and `OSError` if a
    disk is full.

    Args:
        package: The directory of the shipped package.
        candidate: The download directory.
        server: The server whose roll-outs these are.
        config: Settings of roll-outs.
        connect: Returns a new client of the server for each step.
        measured_ms: Returns the present latency of an inference in milliseconds; None if unknown.
        installed: Returns the ids of the roll-outs that have installed their package on this device.
        trust: The keys by which a package has to be signed; None for any.
        run_trial: Tries a package next to the current one.
    """

    def __init__(
        self,
        package: Path,
        candidate: Path,
        server: FleetConfig,
        config: RolloutConfig,
        *,
        connect: Callable[[], AbstractContextManager[PortingClient]],
        measured_ms: Callable[[], float | None],
        installed: Callable[[], Collection[str]],
        trust: Trust | None = None,
        run_trial: TrialRunner = try_candidate,
    ) -> None:
        self._package = package
        self._candidate = candidate
        self._server = server
        self._config = config
        self._connect = connect
        self._measured_ms = measured_ms
        self._installed = installed
        self._trust = trust
        self._run_trial = run_trial
        self._steps = {
            InstallationPhase.DOWNLOADING: self._download,
            InstallationPhase.VALIDATING: self._validate,
            InstallationPhase.INSTALLING: self._install,
            InstallationPhase.ROLLING_BACK: self._roll_back,
        }

    def of(self, phase: InstallationPhase) -> Callable[[Installation], Installation] | None:
        """Return the step for a phase; None if no work remains in it."""
        return self._steps.get(phase)

    def failed(self, installation: Installation, reason: str) -> Installation:
        """Remove the download, and return the installation as failed; the current package stays."""
        shutil.rmtree(self._candidate, ignore_errors=True)
        return installation.at(InstallationPhase.FAILED, reason)

    def _download(self, installation: Installation) -> Installation:
        """Download the package, and check that it is the announced one, of a trusted server."""
        with self._connect() as client:
            client.fetch_without_blocks(installation.job, installation.goal, self._candidate)
        note_token_file(state_directory(self._package), self._server.server, self._server.token_file)
        package = Package.open(self._candidate)
        if package.digest != installation.digest:
            raise MistifyError(
                ErrorCode.CORRUPT_PACKAGE,
                f"the manifest of the package has the SHA-256 {package.digest}; the roll-out is of "
                f"{installation.digest}",
            )
        check_trusted(package, self._trust)
        return installation.at(InstallationPhase.VALIDATING, "downloaded")

    def _validate(self, installation: Installation) -> Installation:
        """Try the package next to the current one; the server judges how good it is."""
        if installation.trials > MOST_TRIALS:
            return self.failed(installation, f"{MOST_TRIALS} trials have begun, and none has succeeded")
        trial = self._run_trial(self._candidate, self._package, self._config.examples)
        reason = (
            f"an inference takes {format_time(trial.candidate_ms, 3)}, "
            f"{format_time(trial.running_ms, 3)} with the current package"
        )
        if trial.agreement is not None:
            reason += f"; both agree on {trial.agreement:.0%} of the examples"
        return installation.at(
            InstallationPhase.INSTALLING,
            reason,
            agreement=trial.agreement,
            before_ms=installation.before_ms or self._measured_ms(),
        )

    def _install(self, installation: Installation) -> Installation:
        install_candidate(self._package, self._candidate, installation.job, installation.goal)
        return installation.at(InstallationPhase.INSTALLED, f"installed; {installation.reason}")

    def _roll_back(self, installation: Installation) -> Installation:
        if installation.rollout in self._installed():
            take_back(self._package, installation.job, installation.goal)
        if installation.error:
            return self.failed(installation, installation.error)
        shutil.rmtree(self._candidate, ignore_errors=True)
        return installation.at(InstallationPhase.ROLLED_BACK, installation.reason)
