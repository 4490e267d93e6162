"""What the monitor logs of the help that apps get from other devices."""

from pathlib import Path
from typing import Final

from mistify_client.lending.reports import LendingReport, read_reports
from mistify_client.lending.status import NOT_CONNECTED
from mistify_client.monitor.state.journal import Journal
from mistify_client.runtime.versions import state_directory

_ABOUT: Final = "lending"


class LendingLog:
    """Logs which helpers the apps of a package use, and why others are not used; once until it changes.

    Args:
        package: The directory of the shipped package.
        journal: The log for changes and problems.

    Attributes:
        reports: The last reports of apps that run inferences.
    """

    def __init__(self, package: Path, journal: Journal) -> None:
        self.reports: list[LendingReport] = []
        self._state = state_directory(package)
        self._journal = journal
        self._helpers: set[str | None] = {None}

    def observe(self) -> None:
        """Read the reports of apps."""
        self.reports = read_reports(self._state)
        helpers = {report.helper for report in self.reports}
        if self.reports and helpers != self._helpers:
            self._helpers = helpers
            self._journal.note(_ABOUT, "; ".join(report.reason for report in self.reports))
        problems = {text for report in self.reports for text in report.problems.values()}
        self._journal.problem(_ABOUT, "; ".join(sorted(problems - {"", NOT_CONNECTED})) or None)
