"""Writing the trace of a monitor."""

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from mistify.costs.energy import Energy
from mistify.errors import Problem, invalid_config
from mistify.package.manifest import Manifest
from mistify_client.monitor.foreground import IntervalOutcome
from mistify_client.monitor.traces.lines import Line, Moment, Options, Run
from mistify_client.monitor.traces.reading import is_trace
from mistify_client.runtime.options import Option


class TraceWriter:
    """Appends the conditions and decisions of a monitor to a file.

    A line that was cut off by a full disk or a power failure is removed, so that every line is complete.

    Args:
        path: The file; an existing trace is continued.
        now: The wall clock.

    Raises:
        MistifyError: INVALID_CONFIG, the file cannot be written, or is something else.
    """

    def __init__(self, path: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._file = _opened(path)
        self._now = now
        self.begin()

    def begin(self) -> None:
        """Begin a new run, as after the start of a monitor."""
        self._run: Run | None = Run(format=1, started=self._now().isoformat(timespec="seconds"))
        self._manifest: Manifest | None = None
        self._options: tuple[Option, ...] = ()
        self._energies: Mapping[str, Energy] = {}
        self._state: tuple[str, bool] | None = None

    def write(self, outcome: IntervalOutcome) -> None:
        """Append a decision with its inputs.

        Raises:
            OSError: The disk is full, or failed. The decision is left out, and the next one can be written.
        """
        situation, decision = outcome.situation, outcome.decision
        lines: list[Line] = [] if self._run is None else [self._run]
        if outcome.manifest is not self._manifest:
            goal = outcome.manifest.goal
            lines.append(Options(options=situation.options, option=situation.option, goal=goal))
        elif situation.options != self._options:
            lines.append(Options(options=situation.options))
        energies, state = situation.conditions.energies, (decision.option, decision.fits)
        lines.append(
            Moment(
                now=situation.now,
                ratio=situation.ratio,
                idle=situation.idle,
                reading=situation.reading,
                computing_share=situation.conditions.computing_share,
                memory_bytes=situation.conditions.memory_bytes,
                energies=None if energies == self._energies else dict(energies),
                helped_ms=dict(situation.conditions.helped_ms),
                targets=situation.targets,
                measured_ms=None if outcome.timing is None else outcome.timing.latency_ms,
                measured_mj=None if outcome.energy is None else outcome.energy.mj,
                option=decision.option,
                fits=decision.fits,
                reason=None if state == self._state else decision.reason,
            )
        )
        self._append(lines)
        self._run, self._manifest, self._options = None, outcome.manifest, situation.options
        self._energies, self._state = energies, state

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, lines: list[Line]) -> None:
        texts = (line.model_dump_json(exclude_none=True, exclude_defaults=True) for line in lines)
        content = "".join(f"{text}\n" for text in texts).encode()
        before = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        except OSError:
            with suppress(OSError):
                self._file.truncate(before)
            raise


def _opened(path: Path) -> FileIO:
    """Open a file to append to, without a line that is not complete."""
    try:
        file = FileIO(path, "a")
        with path.open("rb") as before:
            known = is_trace(before)
            before.seek(0)
            complete = sum(len(line) for line in before if line.endswith(b"\n"))
    except OSError as error:
        problem = Problem("--record", f"{path} ({error.strerror})", "a file to write", "give another one")
        raise invalid_config([problem], "the trace") from error
    if not known:
        file.close()
        problem = Problem("--record", str(path), "a new file, or a trace to continue", "give another one")
        raise invalid_config([problem], "the trace")
    file.truncate(complete)
    return file
