"""The audit log: who changed what, one line of JSON per call."""

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

from typing_extensions import override

from mistify_server.identity.callers import Caller, Scope

#: Scopes whose calls change jobs, files, hardware or tokens, rather than the state of a device.
RECORDED: Final = frozenset({Scope.SUBMIT, Scope.ADMIN})

#: Maximum length of a text in a line, because callers choose paths and names.
_MOST_TEXT: Final = 300

_log = logging.getLogger(__name__)


class _File(WatchedFileHandler):
    """A file to append to. An error is logged once until a line can be written again."""

    _error: BaseException | None = None

    @override
    def emit(self, record: logging.LogRecord) -> None:
        before, self._error = self._error, None
        try:
            super().emit(record)
        except OSError:  # the file cannot be opened
            self.handleError(record)
        if self._error is not None and before is None:
            _log.error("the audit log cannot be written: %s", self._error)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        self._error = sys.exc_info()[1]


class AuditLog:
    """Appends to a file that other programs may rotate.

    Calls of unknown callers are not recorded, because anyone could fill the disk with them.
    Calls are answered even if the file cannot be written, for example on a full disk.
    """

    def __init__(self, path: Path) -> None:
        self._handler = _File(path, encoding="utf-8", delay=True)

    def record(self, caller: Caller, action: str, subject: str = "", outcome: str = "OK") -> None:
        """Record a call.

        Args:
            action: The called method, such as `POST /v1/jobs`.
            subject: The changed object, such as the id of a job; empty if the action names it.
            outcome: `OK`, or the code of the error.
        """
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "caller": str(caller.id),
            "action": action,
            "subject": subject,
            "outcome": outcome,
        }
        text = json.dumps({name: value[:_MOST_TEXT] for name, value in fields.items() if value})
        self._handler.handle(logging.makeLogRecord({"msg": text}))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()
