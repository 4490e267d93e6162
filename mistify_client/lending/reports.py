"""What apps report of the help that they get, for the monitor of the package."""

import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import Field, ValidationError

from mistify.files.writing import write_bytes
from mistify.package.records import Record
from mistify_client.lending.status import LendingStatus

_REPORTS: Final = "lending"

#: Seconds between two reports of an app after a change, and without one.
_CHANGED_SECONDS: Final = 1.0
_UNCHANGED_SECONDS: Final = 5.0

#: Seconds after which another report is tried if one could not be written.
_RETRY_SECONDS: Final = 60.0

#: A predicted time has changed if it differs by this factor.
_CHANGED: Final = 1.1

#: Reports that are older are of apps that run no inferences. So are those of the future: they were written
#: before the clock was set back, for example by a power cut on a device without a battery for its clock.
_OLDEST_SECONDS: Final = 15.0

#: Numbers of the reporters in this process, each with a file of its own.
_NUMBERS: Final = itertools.count()

logger = logging.getLogger(__name__)


class HelpedTimes(NamedTuple):
    """The predicted times of an app's inferences.

    Attributes:
        option: Id of the option that runs.
        local_ms: Milliseconds of the option on this device alone.
        helped_ms: Id of each option that helpers can help with now -> milliseconds with the best of them.
    """

    option: str
    local_ms: float
    helped_ms: Mapping[str, float]

    def differ(self, others: "HelpedTimes") -> bool:
        """Return True if options, or their times, have changed."""
        if (self.option, self.helped_ms.keys()) != (others.option, others.helped_ms.keys()):
            return True
        pairs = [(ms, others.helped_ms[option]) for option, ms in self.helped_ms.items()]
        return any(
            max(one, other) > _CHANGED * min(one, other)
            for one, other in [(self.local_ms, others.local_ms), *pairs]
        )


class LendingReport(Record):
    """The state of an app's network that helpers may help with.

    Attributes:
        seconds: The time of the report, in seconds since 1970.
        helpers: Addresses of the helpers of the last inference, in the order of their parts; none for this
            device alone.
        reason: Why the inference ran there, for people.
        predicted_ms: Expected milliseconds of the last inference.
        measured_ms: Milliseconds that it took.
        problems: Address of a helper -> why it is not used; empty for a helper that is.
        counts: Number of inferences by kind, as in `LendingStatus`.
        option: Id of the option that runs; "" in reports of earlier versions.
        local_ms: Expected milliseconds of it on this device alone.
        helped_ms: Id of each option that helpers can help with now -> expected milliseconds with them.
    """

    seconds: float
    helpers: tuple[str, ...]
    reason: str
    predicted_ms: float
    measured_ms: float
    problems: dict[str, str]
    counts: dict[str, int]
    option: str = ""
    local_ms: float = 0.0
    helped_ms: dict[str, float] = Field(default_factory=dict)


class LendingReporter:
    """Writes the reports of a loaded model.

    Args:
        state: The state directory of the package.
        clock: Returns seconds.
    """

    def __init__(self, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = state / _REPORTS / f"{os.getpid()}-{next(_NUMBERS)}.json"
        self._clock = clock
        self._failed = False
        self._looked_at = self._written_at = -math.inf
        self._written: tuple[object, HelpedTimes] | None = None

    def offer(self, status: LendingStatus, predict: Callable[[], HelpedTimes]) -> None:
        """Write a report if something has changed, or if the last one is some time ago.

        Args:
            predict: Returns the predicted times; called once a second.
        """
        now = self._clock()
        if now - self._looked_at < _CHANGED_SECONDS:
            return
        unchanged_for = now - self._written_at
        if status.placement.is_beyond_rate and unchanged_for < _UNCHANGED_SECONDS:
            return  # others are helped
        self._looked_at, times = now, predict()
        shown = status.placement.helpers, status.placement.is_decided_by_monitor, status.problems
        if self._written is not None and unchanged_for < _UNCHANGED_SECONDS:
            before, then = self._written
            if shown == before and not times.differ(then):
                return
        self._written, self._written_at = (shown, times), now
        report = LendingReport(
            seconds=time.time(),
            helpers=status.placement.helpers,
            reason=status.placement.reason,
            predicted_ms=status.placement.predicted_ms,
            measured_ms=status.measured_ms,
            problems=dict(status.problems),
            counts=dict(status.counts),
            option=times.option,
            local_ms=times.local_ms,
            helped_ms=dict(times.helped_ms),
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._path, report.model_dump_json().encode())
        except OSError as error:
            if not self._failed:
                logger.warning("no monitor can see which helpers are used: %s", error)
            self._failed, self._looked_at = True, now + _RETRY_SECONDS
        else:
            self._failed = False


def read_reports(state: Path) -> list[LendingReport]:
    """Return the reports of the apps that run inferences; remove those of others.

    Args:
        state: The state directory of the package.
    """
    reports = []
    for path in sorted((state / _REPORTS).glob("*.json")):
        try:
            report = LendingReport.model_validate_json(path.read_bytes())
            if abs(time.time() - report.seconds) <= _OLDEST_SECONDS:
                reports.append(report)
            else:
                path.unlink()
        except (OSError, ValidationError):  # being replaced or removed, or of another version
            continue
    return reports
