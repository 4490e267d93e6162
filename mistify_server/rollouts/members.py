"""The devices of a roll-out, and the stage of each.

A device has a place between 0 and 1, the hash of its name and of the roll-out, and belongs to the first stage
whose share is above its place. So a stage includes the earlier ones, and each roll-out begins with other
devices. Of the devices that have reported lately, those with the lowest places always belong to the first
stage, as many as it needs: a hundredth of a small fleet would otherwise be no device at all.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from heapq import nsmallest
from typing import Final

from mistify.fleet import DeviceReport, DeviceStatus
from mistify.rollouts import DeviceInstallation, InstallationPhase, Rollout

#: How long a device that has stopped reporting is waited for.
AWAITED: Final = timedelta(hours=1)

#: Bytes of a hash in a place; a float holds them exactly, so that no place is 1.
_BYTES: Final = 6


@dataclass(frozen=True)
class Member:
    """A device of a roll-out.

    Attributes:
        name: Its name in the fleet.
        stage: Index of the first stage that includes it.
        awaited: Whether it has reported lately, so that a stage may wait for it.
        runs_it: Whether it runs the roll-out's package now.
        installation: The installation of the roll-out's package; None if it has not begun.
        measured_ms: Milliseconds of an inference with the current package; None if unknown.
    """

    name: str
    stage: int
    awaited: bool
    runs_it: bool
    installation: DeviceInstallation | None = None
    measured_ms: float | None = None

    @property
    def error(self) -> str | None:
        """Why the installation failed; None if it did not.

        A device that began and has been silent since may have been brought down by the package.
        """
        installation = self.installation
        if installation is None:
            return None
        if installation.phase is InstallationPhase.FAILED:
            return " ".join(installation.reason.split())
        lost = installation.phase.begun and not self.settled and not self.awaited
        return f"no report for an hour, the last one: {installation.phase.value}" if lost else None

    @property
    def failed(self) -> bool:
        """True if the installation failed."""
        return self.error is not None

    @property
    def installing(self) -> bool:
        """True if it has begun, but has not reported with the new package yet."""
        installation = self.installation
        return installation is not None and installation.phase.begun and not (self.settled or self.failed)

    @property
    def settled(self) -> bool:
        """True if it has reported with the new package, and with its latency if apps ran before."""
        installation = self.installation
        if installation is None or not self.runs_it or installation.phase is not InstallationPhase.INSTALLED:
            return False
        return installation.before_ms is None or self.measured_ms is not None

    @property
    def slowdown(self) -> float | None:
        """The latency as a multiple of that before; None if unknown."""
        if self.installation is None or self.installation.before_ms is None or self.measured_ms is None:
            return None
        return self.measured_ms / self.installation.before_ms if self.settled else None

    @property
    def agreement(self) -> float | None:
        """The share of its examples on which both packages agree; None if unknown."""
        return self.installation.agreement if self.installation is not None and self.settled else None


def place(rollout_id: str, device: str) -> float:
    """Return the place of a device in a roll-out, in [0, 1)."""
    digest = hashlib.sha256(f"{rollout_id}/{device}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:_BYTES]) / 2.0 ** (8 * _BYTES)


def is_addressed(rollout: Rollout, status: DeviceStatus) -> bool:
    """Check whether a device is among those of a roll-out, in whatever stage."""
    offered = status.rollouts
    if offered is None or offered.package != rollout.package:
        return False
    return fnmatchcase(status.name, rollout.devices.replace("[", "[[]").replace("?", "[?]"))


def runs(rollout: Rollout, status: DeviceStatus) -> bool:
    """Check whether a device runs the package of a roll-out."""
    return (status.job_id, status.goal_id) == (rollout.job_id, rollout.goal_id)


def has_begun(rollout: Rollout, status: DeviceStatus) -> bool:
    """Check whether a device has begun to install the package of a roll-out, whatever became of it."""
    installation = None if status.rollouts is None else status.rollouts.installation
    return installation is not None and installation.rollout == rollout.id


def first_devices(rollout: Rollout, reports: Iterable[DeviceReport], now: datetime) -> frozenset[str]:
    """Return the devices that belong to the first stage even if its share does not include them.

    Args:
        reports: The reports of the devices that the roll-out addresses.
    """
    names = (report.status.name for report in reports if _is_awaited(report, now))
    return frozenset(nsmallest(rollout.criteria.devices, names, key=lambda name: place(rollout.id, name)))


def stage_of(rollout: Rollout, device: str, first: frozenset[str]) -> int:
    """Return the index of the first stage that includes a device.

    Args:
        first: The result of `first_devices`.
    """
    return 0 if device in first else bisect_right(rollout.stages, place(rollout.id, device))


def members_of(
    rollout: Rollout, reports: Iterable[DeviceReport], first: frozenset[str], now: datetime
) -> list[Member]:
    """Return the devices of a roll-out.

    Args:
        reports: The reports of the devices that it addresses.
        first: The result of `first_devices`.
    """
    return [_member(rollout, report, first, now) for report in reports]


def _member(rollout: Rollout, report: DeviceReport, first: frozenset[str], now: datetime) -> Member:
    status = report.status
    stage, awaited = stage_of(rollout, status.name, first), _is_awaited(report, now)
    runs_it = runs(rollout, status)
    if status.rollouts is None or not has_begun(rollout, status):
        return Member(status.name, stage, awaited, runs_it)
    reported = status.rollouts
    return Member(status.name, stage, awaited, runs_it, reported.installation, reported.measured_ms)


def _is_awaited(report: DeviceReport, now: datetime) -> bool:
    return now - report.seen <= AWAITED
