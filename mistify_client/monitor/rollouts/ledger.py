"""The record on disk of the last package of a roll-out, and of the roll-outs that have installed one."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from mistify.files.writing import write_json
from mistify.fleet import LONGEST_REASON
from mistify.rollouts import DeviceInstallation, InstallationPhase

#: Maximum number of roll-outs remembered as having installed a package here.
_MOST_REMEMBERED: Final = 100


class Installation(BaseModel):
    """The package of a roll-out on this device.

    Attributes:
        rollout: Id of the roll-out.
        job: The job that made the package.
        goal: The goal that the package was made for.
        digest: SHA-256 of the package's manifest.
        phase: The next phase of the work.
        reason: The reason for the current phase, such as an error.
        before_ms: Milliseconds of an inference before the installation; None if no app ran.
        agreement: Share of the examples, 0 to 1, on which the new and the old package agree; None without
            examples.
        trials: Number of trials started on this device, including trials that crashed the daemon, but not
            those that an unreachable server or a full disk prevented.
        error: Why the package is rolled back although the roll-out was not stopped; empty otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollout: str
    job: str
    goal: str
    digest: str
    phase: InstallationPhase = InstallationPhase.DOWNLOADING
    reason: str = ""
    before_ms: float | None = None
    agreement: float | None = None
    trials: int = 0
    error: str = ""

    def at(self, phase: InstallationPhase, reason: str, **changes: object) -> "Installation":
        """Return a copy in another phase.

        Args:
            changes: New values of other attributes.
        """
        return self.model_copy(update={"phase": phase, "reason": reason, **changes})

    @property
    def reported(self) -> DeviceInstallation:
        """The installation as the server learns it."""
        return DeviceInstallation(
            self.rollout, self.phase, self.reason[:LONGEST_REASON], self.before_ms, self.agreement
        )


class InstallationLedger:
    """Record on disk of the last installation.

    Args:
        path: The file. If its content is invalid, the record starts empty.

    Attributes:
        installation: The last installation; None if there was none.
        installed: Ids of the roll-outs that have installed their package here. Those whose package ran
            already have not, so there is nothing to take back.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.installation: Installation | None = None
        self.installed: tuple[str, ...] = ()
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            content = json.loads(path.read_bytes())
            installed = tuple(map(str, content["installed"]))
            self.installation = Installation.model_validate(content["installation"])
            self.installed = installed

    def save(self, installation: Installation) -> None:
        """Write an installation in its current phase to disk.

        Raises:
            OSError: The file cannot be written; the previous record is kept.
        """
        installed = self.installed
        if installation.phase is InstallationPhase.INSTALLING:
            installed = (*(each for each in installed if each != installation.rollout), installation.rollout)
            installed = installed[-_MOST_REMEMBERED:]
        content = {"installation": installation.model_dump(mode="json"), "installed": installed}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, content, durable=True)
        self.installation, self.installed = installation, installed
