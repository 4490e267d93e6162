"""Staged roll-outs: the package of a goal replaces another one on a fleet, stage by stage.

The server decides which devices should run which package; devices learn it in the responses to their status
reports, and work without the server.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final

from mistify.config.porting import is_id
from mistify.errors import Problem, invalid_config

#: Every device, as a pattern for names.
EVERY_DEVICE: Final = "*"

#: Maximum length of a pattern for the names of devices, in characters.
LONGEST_PATTERN: Final = 200

#: Maximum number of stages.
MOST_STAGES: Final = 20

#: Longest minimum time of a stage: 30 days, in seconds.
LONGEST_SECONDS: Final = 30 * 24 * 3600.0

#: Maximum of the minimum number of devices.
_MOST_DEVICES: Final = 100_000


class RolloutState(StrEnum):
    """State of a roll-out."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    STOPPED = "stopped"
    ROLLED_BACK = "rolled back"

    @property
    def under_way(self) -> bool:
        """True if not all stages have passed yet."""
        return self in (RolloutState.RUNNING, RolloutState.PAUSED)

    @property
    def in_force(self) -> bool:
        """True if devices should run the package."""
        return self.under_way or self is RolloutState.DONE


class InstallationPhase(StrEnum):
    """Phase of the installation of a roll-out's package on a device."""

    DOWNLOADING = "downloading"
    VALIDATING = "validating"
    INSTALLING = "installing"
    INSTALLED = "installed"
    ROLLING_BACK = "rolling back"
    ROLLED_BACK = "rolled back"
    FAILED = "failed"

    @property
    def begun(self) -> bool:
        """True if the device runs the package, or is about to."""
        return self not in (
            InstallationPhase.ROLLING_BACK,
            InstallationPhase.ROLLED_BACK,
            InstallationPhase.FAILED,
        )


@dataclass(frozen=True)
class DeviceInstallation:
    """The last package of a roll-out on a device.

    Attributes:
        rollout: Id of the roll-out.
        reason: Why it is in this phase, such as the error.
        before_ms: Milliseconds of an inference before the installation; None if no app ran.
        agreement: Share of the device's examples, 0 to 1, on which the new and the old package agree; None
            without examples.
    """

    rollout: str
    phase: InstallationPhase
    reason: str = ""
    before_ms: float | None = None
    agreement: float | None = None


@dataclass(frozen=True)
class DeviceRollouts:
    """What a device reports on roll-outs.

    Attributes:
        package: Id of the goal that the package on the device was shipped for.
        measured_ms: Milliseconds of an inference with the current package, as a median over the last
            measurements; None if no app has run it.
        installation: The last package of a roll-out; None if there was none.
    """

    package: str
    measured_ms: float | None = None
    installation: DeviceInstallation | None = None


@dataclass(frozen=True)
class WantedPackage:
    """The package that a device should run.

    Attributes:
        rollout: Id of the roll-out.
        job_id: The job that made the package.
        goal_id: The goal that the package was made for.
        digest: SHA-256 of the package's manifest, in hexadecimal.
    """

    rollout: str
    job_id: str
    goal_id: str
    digest: str


@dataclass(frozen=True)
class Instruction:
    """The response to the status of a device.

    Attributes:
        wanted: The package that the device should run; None if no roll-out addresses it.
        withdrawn: Id of a roll-out that was stopped, from whose package the device returns to the previous
            one; None if there is none.
    """

    wanted: WantedPackage | None = None
    withdrawn: str | None = None


@dataclass(frozen=True)
class RolloutCriteria:
    """What a stage needs before the next one starts, and the limits beyond which a roll-out stops.

    Attributes:
        after_seconds: Minimum time of a stage, in seconds.
        devices: Minimum number of devices in each stage that have reported with the new package, or why they
            failed; fewer if the stage has fewer.
        errors: Maximum share of failed devices among those, 0 to 1.
        latency: Maximum latency as a multiple of that of the same devices before; None for no limit.
        agreement: Minimum share of the devices' examples, 0 to 1, on which both packages agree; None for no
            limit.
    """

    after_seconds: float = 3600.0
    devices: int = 1
    errors: float = 0.05
    latency: float | None = 1.2
    agreement: float | None = 0.7


@dataclass(frozen=True)
class NewRollout:
    """A roll-out to start.

    Attributes:
        job_id: The job of the goal whose package is rolled out.
        package: The package to replace: the id of the goal that it was shipped for.
        devices: Pattern for the names of the devices, in which `*` stands for any text.
        stages: Shares of these devices, ascending to 1.
    """

    job_id: str
    goal_id: str
    package: str
    devices: str = EVERY_DEVICE
    stages: tuple[float, ...] = (0.01, 0.1, 1.0)
    criteria: RolloutCriteria = field(default_factory=RolloutCriteria)


@dataclass(frozen=True)
class StageProgress:
    """The devices of a stage that are not in an earlier one.

    Attributes:
        share: Share of all devices of the roll-out, 0 to 1, in this stage and all earlier ones.
        devices: Number of devices.
        installed: Number of devices that have reported with the new package.
        installing: Number of devices that have begun, but have not reported with the new package yet.
        failed: Number of devices on which the installation failed.
    """

    share: float
    devices: int
    installed: int
    installing: int
    failed: int


@dataclass(frozen=True)
class RolloutFigures:
    """Figures over the devices of a roll-out that have reported; None if unknown.

    Attributes:
        errors: Share of failed devices, 0 to 1.
        latency: Median over devices of the latency as a multiple of that before.
        agreement: Mean over devices of the share of examples, 0 to 1, on which both packages agree.
    """

    errors: float | None = None
    latency: float | None = None
    agreement: float | None = None


@dataclass(frozen=True)
class RolloutOutcome:
    """The devices of a roll-out when it stopped or was rolled back, by stages."""

    stages: tuple[StageProgress, ...]
    figures: RolloutFigures


@dataclass(frozen=True)
class Rollout:
    """A roll-out.

    Attributes:
        job_id: The job of the goal whose package is rolled out.
        digest: SHA-256 of the package's manifest, in hexadecimal.
        package: The package to replace: the id of the goal that it was shipped for.
        devices: Pattern for the names of the devices, in which `*` stands for any text.
        stages: Shares of these devices, ascending to 1.
        stage: Index of the current stage, or of the last one.
        since_unix_ms: The time since which the stage or the state lasts, in milliseconds since 1970.
        reason: Why it is in this state.
        created_unix_ms: Time of its start, in milliseconds since 1970.
        started_by: The name of the caller who started it.
        outcome: Its devices when it stopped or was rolled back; None while it is in force.
    """

    id: str
    job_id: str
    goal_id: str
    digest: str
    package: str
    devices: str
    stages: tuple[float, ...]
    criteria: RolloutCriteria
    state: RolloutState
    stage: int
    since_unix_ms: int
    reason: str
    created_unix_ms: int
    started_by: str
    outcome: RolloutOutcome | None = None

    @property
    def wanted(self) -> WantedPackage:
        """The package that its devices should run."""
        return WantedPackage(self.id, self.job_id, self.goal_id, self.digest)


@dataclass(frozen=True)
class RolloutProgress:
    """A roll-out with its devices, by stages: those of now, or of when it stopped or was rolled back.

    Attributes:
        running: Number of its devices that run the package now.
    """

    rollout: Rollout
    stages: tuple[StageProgress, ...]
    figures: RolloutFigures
    running: int = 0


def check_new_rollout(new: NewRollout) -> None:
    """Check a roll-out before it is started.

    Raises:
        MistifyError: INVALID_CONFIG with every problem.
    """
    problems = list(_problems(new))
    if problems:
        raise invalid_config(problems, "the roll-out")


def _problems(new: NewRollout) -> Iterator[Problem]:
    if not is_id(new.package):
        expected = "the id of the goal that the package was shipped for"
        yield Problem("package", repr(new.package[:LONGEST_PATTERN]), expected, "see the fleet page")
    if not (0 < len(new.devices) <= LONGEST_PATTERN and new.devices.isprintable()):
        expected = f"a pattern of 1 to {LONGEST_PATTERN} printable characters"
        yield Problem("devices", repr(new.devices[:LONGEST_PATTERN]), expected, 'use "*" for all devices')
    if not _ascends_to_1(new.stages):
        shown = ", ".join(f"{share:g}" for share in new.stages[:MOST_STAGES]) or "none"
        expected = f"up to {MOST_STAGES} shares that ascend to 1"
        yield Problem("stages", shown, expected, "for example 0.01, 0.1, 1")
    yield from _problems_of_criteria(new.criteria)


def _ascends_to_1(stages: tuple[float, ...]) -> bool:
    if not 0 < len(stages) <= MOST_STAGES or stages[-1] != 1:
        return False
    return all(math.isfinite(share) for share in stages) and all(
        before < after for before, after in pairwise((0.0, *stages))
    )


def _problems_of_criteria(criteria: RolloutCriteria) -> Iterator[Problem]:
    if not 0 <= criteria.after_seconds <= LONGEST_SECONDS:
        expected = f"0 to {LONGEST_SECONDS:.0f} seconds"
        value = f"{criteria.after_seconds:g}"
        yield Problem("criteria.after_seconds", value, expected, "choose another time")
    if not 1 <= criteria.devices <= _MOST_DEVICES:
        expected = f"1 to {_MOST_DEVICES}"
        yield Problem("criteria.devices", str(criteria.devices), expected, "choose another number")
    for name, share in (("errors", criteria.errors), ("agreement", criteria.agreement)):
        if share is not None and not 0 <= share <= 1:
            yield Problem(f"criteria.{name}", f"{share:g}", "a share from 0 to 1", "choose another limit")
    if criteria.latency is not None and not (math.isfinite(criteria.latency) and criteria.latency > 0):
        fix = "for example 1.2, for a fifth more than before"
        yield Problem("criteria.latency", f"{criteria.latency:g}", "a positive number", fix)
