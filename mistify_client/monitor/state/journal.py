"""The daemon's log: one line of JSON per change, in a file of limited size."""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from mistify.errors import MistifyError

#: The size limit of one file. The log consists of at most two: the current file and the previous one.
LARGEST_BYTES = 1_000_000

#: Number of recent entries kept in memory for `mistify status`.
REMEMBERED = 10


class Journal:
    """Log that writes entries to a file and a stream, from any thread.

    If the disk is full, entries are lost, but no error is raised.

    Args:
        path: The log file. Before it exceeds the limit, it is renamed to `NAME.1` and replaces the
            previous file of that name.
        echo: A stream that also receives every entry; None for no stream.
        now: The wall clock.
        largest: The limit of the file in bytes.

    Attributes:
        noted: The number of entries so far.
        last: The most recent `REMEMBERED` entries.
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
        """Write an entry.

        Args:
            event: The kind of entry, such as "switch".
            reason: An explanation for people.
            fields: Additional JSON-serialisable values of the entry.
        """
        time = self._now().isoformat(timespec="milliseconds")
        entry = {"time": time, "event": event, "reason": reason, **fields}
        line = json.dumps(entry) + "\n"
        with self._lock:
            self.noted += 1
            self.last.append(entry)
            self._append(line)
            if self._echo is not None:
                with suppress(OSError):  # the reader of the stream may have closed it
                    self._echo.write(line)
                    self._echo.flush()

    def problem(self, about: str, reason: str | None) -> None:
        """Log a problem once while it lasts, and its end.

        Args:
            about: The part with the problem, such as "package".
            reason: A description of the problem; None if it is solved.
        """
        with self._lock:  # other threads may log the same problem
            if reason == self._problems.get(about):
                return
            if reason is None:
                del self._problems[about]
            else:
                self._problems[about] = reason
        if reason is None:
            self.note("recovered", f"{about}: no problem any more")
        else:
            self.note("problem", reason, about=about)

    @contextmanager
    def noting_problems(self, about: str) -> Iterator[list[Exception]]:
        """Log an error of Mistify or the system as a problem, or that earlier ones are solved.

        Args:
            about: The part with the problem, such as "package".

        Yields:
            A list that contains the error after a failure.
        """
        errors: list[Exception] = []
        try:
            yield errors
        except (MistifyError, OSError) as error:
            errors.append(error)
            self.problem(about, str(error))
        else:
            self.problem(about, None)

    @property
    def problems(self) -> dict[str, str]:
        """Return the current problems: part with the problem -> reason."""
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
