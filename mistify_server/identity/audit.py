"""The audit log: who changed what, one line of JSON per call."""

import json
import logging
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

from mistify_server.identity.callers import Caller, Scope

#: Scopes whose calls change jobs, files, hardware or tokens, rather than the state of a device.
RECORDED: Final = frozenset({Scope.SUBMIT, Scope.ADMIN})


class AuditLog:
    """Appends to a file that other programs may rotate.

    Calls of unknown callers are not recorded, because anyone could fill the disk with them.
    """

    def __init__(self, path: Path) -> None:
        self._handler = WatchedFileHandler(path, encoding="utf-8", delay=True)

    def record(self, caller: Caller, action: str, subject: str = "", outcome: str = "OK") -> None:
        """Record a call.

        Args:
            action: The called method, such as `POST /v1/jobs`.
            subject: The changed object, such as the id of a job; empty if the action names it.
            outcome: `OK`, or the code of the error.
        """
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "caller": caller.name,
            "action": action,
            "subject": subject,
            "outcome": outcome,
        }
        text = json.dumps({name: value for name, value in fields.items() if value})
        self._handler.handle(logging.makeLogRecord({"msg": text}))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()
