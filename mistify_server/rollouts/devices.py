"""The devices of roll-outs, by the last reports of a fleet."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from mistify.fleet import DeviceStatus
from mistify.rollouts import Rollout, RolloutProgress, RolloutState
from mistify_server.fleet import Fleet
from mistify_server.rollouts.judging import progress_of
from mistify_server.rollouts.members import (
    Member,
    first_devices,
    has_begun,
    is_addressed,
    members_of,
    runs,
    stage_of,
)

#: How old the devices in a list may be, except for roll-outs that are under way.
_LISTED: Final = timedelta(seconds=5)


class RolloutDevices:
    """The devices of the roll-outs in a fleet. Thread-safe.

    `includes` answers at once. Everything else goes through all reports, and is for other threads than that
    of the event loop.

    Devices cannot report during an outage, which therefore does not count as their silence.
    """

    def __init__(self, fleet: Fleet, now: Callable[[], datetime]) -> None:
        self._fleet = fleet
        self._now = now
        self._first: dict[str, frozenset[str]] = {}
        self._listed: dict[str, tuple[datetime, RolloutProgress]] = {}

    def members(self, rollout: Rollout) -> list[Member]:
        """Return the devices of a roll-out, and remember those that are always in its first stage."""
        reports = [
            replace(report, seen=report.seen + self._fleet.outages.after(report.seen))
            for report in self._fleet.reports()
            if is_addressed(rollout, report.status)
        ]
        now = self._now()
        first = self._first[rollout.id] = first_devices(rollout, reports, now)
        return members_of(rollout, reports, first, now)

    def includes(self, rollout: Rollout, status: DeviceStatus) -> bool:
        """Return whether a device that a roll-out addresses should have its package by now.

        Args:
            rollout: A roll-out in force, of which `members` or `progress` has been called.
        """
        if rollout.state is RolloutState.DONE or has_begun(rollout, status):
            return True
        if rollout.state is RolloutState.PAUSED:
            return False
        return stage_of(rollout, status.name, self._first[rollout.id]) <= rollout.stage

    def progress(self, rollout: Rollout) -> RolloutProgress:
        """Return a roll-out with its devices."""
        outcome = rollout.outcome
        if outcome is None:
            return progress_of(rollout, self.members(rollout))
        running = sum(
            runs(rollout, report.status) and is_addressed(rollout, report.status)
            for report in self._fleet.reports()
        )
        return RolloutProgress(rollout, outcome.stages, outcome.figures, running)

    def listed(self, rollouts: Iterable[Rollout]) -> list[RolloutProgress]:
        """Return roll-outs for a list, which anyone may request often.

        The devices of those that are not under way may be those of a few seconds ago.
        """
        now, before = self._now(), self._listed
        listed: dict[str, tuple[datetime, RolloutProgress]] = {}
        for rollout in rollouts:
            known = before.get(rollout.id)
            outdated = known is None or known[1].rollout is not rollout or now - known[0] >= _LISTED
            if known is None or outdated or rollout.state.under_way:
                known = now, self.progress(rollout)
            listed[rollout.id] = known
        self._listed = listed
        return [progress for _, progress in listed.values()]
