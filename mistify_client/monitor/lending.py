"""What the monitor logs of the help that apps get from other devices."""

from collections.abc import Sequence
from typing import Final

from mistify_client.lending.reports import LendingReport
from mistify_client.lending.status import NOT_CONNECTED
from mistify_client.monitor.state.journal import Journal

_ABOUT: Final = "lending"


class LendingLog:
    """Logs which helpers the apps of a package use, and why others are not used; once until it changes.

    Args:
        journal: The log for changes and problems.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._helpers: set[tuple[str, ...]] = {()}

    def observe(self, reports: Sequence[LendingReport]) -> None:
        """Log what has changed.

        Args:
            reports: The last reports of apps that run inferences.
        """
        helpers = {report.helpers for report in reports}
        if reports and helpers != self._helpers:
            self._helpers = helpers
            self._journal.note(_ABOUT, "; ".join(report.reason for report in reports))
        problems = {text for report in reports for text in report.problems.values()}
        self._journal.problem(_ABOUT, "; ".join(sorted(problems - {"", NOT_CONNECTED})) or None)
