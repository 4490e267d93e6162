"""The fleets of tenants: the last report of each device. Independent of gRPC and HTTP."""

import asyncio
import heapq
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DeviceReport, DeviceStatus, FleetSummary, check_status, text_length
from mistify.times import utc_now
from mistify_server.identity.tenants import ByTenant
from mistify_server.jobs.store_writer import completed
from mistify_server.store.fleet import FleetStore

#: Maximum number of devices per tenant.
MOST_DEVICES: Final = 100_000

#: Maximum length of all texts that the devices of a tenant report, in characters; they are held in memory.
MOST_TEXT: Final = 200_000_000

#: Maximum number of devices per page.
MOST_DEVICES_PER_PAGE: Final = 1_000

#: How long a device that has stopped reporting is still shown.
REMEMBERED: Final = timedelta(days=30)

#: Interval between writes to the store. Each device reports once a minute, and each commit waits for the
#: disk.
_WRITE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class Fleet:
    """The last report of each device of a tenant, held in memory and written to the store within seconds.

    Thread-safe. What goes through all reports takes a fraction of a second for a large fleet: call it on a
    thread.
    """

    def __init__(self, store: FleetStore, now: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._now = now
        self._reports = {report.status.name: report for report in store.all()}
        self._text = sum(text_length(report.status) for report in self._reports.values())
        self._unwritten: dict[str, DeviceReport] = {}
        self._lock = threading.Lock()  # reports are not changed while others go through them

    def report(self, status: DeviceStatus) -> None:
        """Replace the status of a device.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the status; NO_ROOM, there are too many
                devices, or they report too much text.
        """
        check_status(status)
        report = DeviceReport(status, self._now())
        with self._lock:
            if status.name not in self._reports and len(self._reports) >= MOST_DEVICES:
                raise MistifyError(
                    ErrorCode.NO_ROOM,
                    f"{MOST_DEVICES:,} devices report to this server, which is the limit of a tenant; use "
                    f'another server for "{status.name}"',
                )
            previous = self._reports.get(status.name)
            longer = text_length(status) - (0 if previous is None else text_length(previous.status))
            if longer > 0 and self._text + longer > MOST_TEXT:
                raise MistifyError(
                    ErrorCode.NO_ROOM,
                    f"the devices of this server would have {self._text + longer:,} characters of text with "
                    f'this report of "{status.name}"; expected at most {MOST_TEXT:,} for a tenant; '
                    "report shorter texts, or use another server for some of them",
                )
            self._text += longer
            self._reports[status.name] = self._unwritten[status.name] = report

    def page(self, size: int, after: str = "") -> tuple[Sequence[DeviceReport], str]:
        """Return up to `size` devices by name, and the name to continue after; empty on the last page."""
        remaining = (report for report in self.reports() if report.status.name > after)
        following = heapq.nsmallest(size + 1, remaining, key=lambda report: report.status.name)
        shown = following[:size]
        return shown, shown[-1].status.name if len(following) > size else ""

    def reports(self) -> list[DeviceReport]:
        """Return the last report of each device."""
        with self._lock:
            return list(self._reports.values())

    def summary(self) -> FleetSummary:
        """Count the devices."""
        reports = self.reports()
        return FleetSummary(len(reports), sum(not report.status.fits for report in reports))

    def write(self) -> None:
        """Write new reports to the store, and delete devices that stopped reporting long ago.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be written; the next call retries.
        """
        oldest = self._now() - REMEMBERED
        silent = [report.status.name for report in self.reports() if report.seen < oldest]
        with self._lock:
            reports, self._unwritten = self._unwritten, {}
        try:
            if reports:
                self._store.put(reports.values())
            if silent:
                self._store.forget(oldest)
        except MistifyError:
            with self._lock:
                self._unwritten = {**reports, **self._unwritten}
            raise
        with self._lock:
            for name in silent:
                if self._reports[name].seen < oldest:
                    self._text -= text_length(self._reports.pop(name).status)


async def keep_written(fleets: ByTenant[Fleet]) -> None:
    """Write new reports of all tenants every few seconds until cancelled, and then once more."""
    try:
        while True:
            await asyncio.sleep(_WRITE_SECONDS)
            await completed(asyncio.to_thread(_write_if_possible, fleets))
    finally:
        _write_if_possible(fleets)


def _write_if_possible(fleets: ByTenant[Fleet]) -> None:
    for fleet in fleets.all():
        try:
            fleet.write()
        except MistifyError as error:
            _log.warning("device reports could not be written: %s", error)
        except Exception:  # those of other tenants must still be written
            _log.exception("device reports could not be written because of an internal error")
