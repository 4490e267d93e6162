"""The daemon's log: a JSON object in a line for everything that changes, kept from growing."""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

#: The log is at most twice as large: it and the one before it.
LARGEST_BYTES = 1_000_000

#: How many of the last entries are remembered for `mistify status`.
REMEMBERED = 10


class Journal:
    """Writes entries to a file and a stream, from any thread. A full disk costs entries, nothing else.

    Args:
        path: of the file. One that would exceed the limit becomes `NAME.1`, in place of the one before.
        echo: the stream; None for none.
        now: the wall clock.
        largest: the limit in bytes.

    Attributes:
        noted: how many entries there were.
        last: the last `REMEMBERED` of them.
    """

    def __init__(
        self,
        path: Path,
        echo: TextIO | None = sys.stdout,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        largest: int = LARGEST_BYTES,
    ) -> None:
        self._path = path
        self._echo = echo
        self._now = now
        self._largest = largest
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}
        self.noted = 0
        self.last: deque[dict[str, object]] = deque(maxlen=REMEMBERED)

    def note(self, event: str, reason: str, **fields: object) -> None:
        """Write an entry: when, what happened, why, and figures."""
        time = self._now().isoformat(timespec="milliseconds")
        entry = {"time": time, "event": event, "reason": reason, **fields}
        line = json.dumps(entry) + "\n"
        with self._lock:
            self.noted += 1
            self.last.append(entry)
            self._append(line)
            if self._echo is not None:
                with suppress(OSError):  # nobody reads it any more
                    self._echo.write(line)
                    self._echo.flush()

    def problem(self, about: str, reason: str | None) -> None:
        """Note that something goes wrong, once, and that it does no longer, where the reason is None."""
        if reason == self._problems.get(about):
            return
        if reason is None:
            self._problems.pop(about)
            self.note("recovered", f"{about} is all right again")
        else:
            self._problems[about] = reason
            self.note("problem", reason, about=about)

    @property
    def problems(self) -> dict[str, str]:
        """What goes wrong at the moment."""
        return dict(self._problems)

    def _append(self, line: str) -> None:
        try:
            if self._path.exists() and self._path.stat().st_size + len(line) > self._largest:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            self._problems.setdefault("log", f"{self._path}: {error.strerror}")
        else:
            self._problems.pop("log", None)
