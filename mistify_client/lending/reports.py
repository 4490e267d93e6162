"""What apps report of the help that they get, for the monitor of the package."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from mistify.files.writing import write_bytes
from mistify.package.records import Record
from mistify_client.lending.status import LendingStatus

_REPORTS: Final = "lending"

#: Seconds between two reports of an app after a change, and without one.
_CHANGED_SECONDS: Final = 1.0
_UNCHANGED_SECONDS: Final = 5.0

#: Reports that are older are of apps that run no inferences.
_OLDEST_SECONDS: Final = 15.0

logger = logging.getLogger(__name__)


class LendingReport(Record):
    """The state of an app's network that helpers may help with.

    Attributes:
        seconds: The time of the report, in seconds since 1970.
        helper: Address of the helper that the last inference ran on; None for this device alone.
        reason: The reason for it.
        predicted_ms: Expected milliseconds of the last inference.
        measured_ms: Milliseconds that it took.
        problems: Address of a helper -> why it is not used; empty for a helper that is.
        counts: Number of inferences by kind, as in `LendingStatus`.
    """

    seconds: float
    helper: str | None
    reason: str
    predicted_ms: float
    measured_ms: float
    problems: dict[str, str]
    counts: dict[str, int]


class LendingReporter:
    """Writes the reports of an app.

    Args:
        state: The state directory of the package.
        clock: Returns seconds.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = state / _REPORTS / f"{os.getpid()}.json"
        self._clock = clock
        self._written: tuple[object, float] | None = None

    def offer(self, status: LendingStatus) -> None:
        """Write a report if something has changed, or if the last one is some time ago."""
        shown = status.placement.helper, status.problems
        if self._written is not None:
            before, then = self._written
            pause = _UNCHANGED_SECONDS if shown == before else _CHANGED_SECONDS
            if self._clock() - then < pause:
                return
        self._written = shown, self._clock()
        report = LendingReport(
            seconds=time.time(),
            helper=status.placement.helper,
            reason=status.placement.reason,
            predicted_ms=status.placement.predicted_ms,
            measured_ms=status.measured_ms,
            problems=dict(status.problems),
            counts=dict(status.counts),
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._path, report.model_dump_json().encode())
        except OSError as error:
            logger.warning("no monitor can see which helpers are used: %s", error)
            self._written = shown, float("inf")


def read_reports(state: Path) -> list[LendingReport]:
    """Return the reports of the apps that run inferences; remove those of others.

    Args:
        state: The state directory of the package.
    """
    reports = []
    for path in sorted((state / _REPORTS).glob("*.json")):
        try:
            report = LendingReport.model_validate_json(path.read_bytes())
            if time.time() - report.seconds <= _OLDEST_SECONDS:
                reports.append(report)
            else:
                path.unlink()
        except (OSError, ValidationError):  # being replaced or removed, or of another version
            continue
    return reports
