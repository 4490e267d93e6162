"""The fleets of tenants: the last report of each device. Independent of gRPC and HTTP."""

import heapq
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DeviceReport, DeviceStatus, FleetSummary, check_status, text_length
from mistify.times import utc_now
from mistify_server.outages import Outages
from mistify_server.store.fleet import FleetStore

#: Maximum number of devices per tenant.
MOST_DEVICES: Final = 100_000

#: Maximum length of all texts that the devices of a tenant report, in characters; they are held in memory.
MOST_TEXT: Final = 200_000_000

#: Maximum number of devices per page.
MOST_DEVICES_PER_PAGE: Final = 1_000

#: How long a device that has stopped reporting is still shown.
REMEMBERED: Final = timedelta(days=30)


class Fleet:
    """The last report of each device of a tenant: held in memory, and written to the store.

    Servers that share a store share its fleets: each writes the reports that it receives, and `refresh` takes
    over those of the others. The store knows what came last, by the order of writes; no clock does.

    Thread-safe. What goes through all reports takes a fraction of a second for a large fleet: call it on a
    thread.

    Attributes:
        outages: When devices could not report: since the last report of the store, and while it was away.
    """

    def __init__(self, store: FleetStore, now: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._now = now
        self._reports = {report.status.name: report for report in store.all()}
        self._text = sum(text_length(report.status) for report in self._reports.values())
        self._unwritten: dict[str, DeviceReport] = {}
        self._unreadable: dict[str, datetime] = {}
        self._lock = threading.Lock()  # reports are not changed while others go through them
        self._storing = threading.Lock()  # reports that are being written are not compared with the store
        self.outages = Outages(now)
        self.outages.over(max((report.seen for report in self._reports.values()), default=None))

    def report(self, status: DeviceStatus) -> None:
        """Replace the status of a device; the next `write` stores it.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the status; NO_ROOM, there are too many
                devices, or they report too much text.
        """
        check_status(status)
        now = self._now()
        report = DeviceReport(status, now.replace(microsecond=now.microsecond // 1000 * 1000))  # as stored
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
        """Write new reports to the store.

        Reports that cannot be written are not written later, in place of newer ones that other servers have
        received meanwhile: their devices repeat them.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be written.
        """
        with self._storing:
            with self._lock:
                reports, self._unwritten = self._unwritten, {}
            if reports:
                with self.outages.noted():
                    self._store.put(reports.values())

    def refresh(self) -> None:
        """Take over the reports that other servers have written.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be read.
        """
        with self._storing:
            with self._lock:
                known = {name: each for name, each in self._reports.items() if name not in self._unwritten}
            with self.outages.noted():
                seen, changed = self._changed(known)
            with self._lock:
                for name in known.keys() - set(seen):
                    self._replace(name, known[name], None)
                for report in changed:
                    self._replace(report.status.name, known.get(report.status.name), report)

    def _changed(self, known: Mapping[str, DeviceReport]) -> tuple[Collection[str], list[DeviceReport]]:
        """Return the names of all devices in the store, and those of their reports that are not known."""
        compared = self._unreadable | {name: report.seen for name, report in known.items()}
        seen = self._store.seen()
        changed = {name: moment for name, moment in seen.items() if compared.get(name) != moment}
        reports = self._store.named(changed.keys())
        read = {report.status.name for report in reports}
        before = {name: moment for name, moment in self._unreadable.items() if seen.get(name) == moment}
        self._unreadable = before | {name: changed[name] for name in changed if name not in read}
        return seen.keys(), reports

    def forget_silent(self) -> None:
        """Remove the devices that stopped reporting long ago.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be written; the next call retries.
        """
        oldest = self._now() - REMEMBERED
        silent = [report for report in self.reports() if report.seen < oldest]
        if silent:
            self._store.forget(oldest)
            with self._lock:
                for report in silent:
                    self._replace(report.status.name, report, None)

    def _replace(self, name: str, before: DeviceReport | None, after: DeviceReport | None) -> None:
        """Replace or remove a report, unless it is another one than before; the caller holds the lock."""
        if self._reports.get(name) is not before:
            return
        if before is not None:
            self._text -= text_length(self._reports.pop(name).status)
        if after is not None:
            self._text += text_length(after.status)
            self._reports[name] = after
