"""Reading and checking traces."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from mistify.errors import Problem, invalid_config
from mistify.parsing.validation import problems_of
from mistify.wording import listed
from mistify_client.monitor.traces.lines import Line, Moment, Options, Run, kind_of


def is_trace(lines: Iterable[bytes]) -> bool:
    """Return True if the first line is that of a trace, or there is none."""
    first = next(iter(lines), b"")
    try:
        Run.model_validate_json(first)
    except ValidationError:
        return not first.strip()
    return True


def read_trace(path: Path) -> Iterator[Line]:
    """Yield the lines of a trace, with all energies; a last line that is not complete is left out.

    Raises:
        MistifyError: INVALID_CONFIG, naming the line and the key.
    """
    try:
        with path.open("rb") as file:
            yield from checked(file, str(path))
    except OSError as error:
        problem = Problem(str(path), error.strerror or str(error), "a trace to read", "check the path")
        raise invalid_config([problem], str(path)) from error


def checked(lines: Iterable[bytes], source: str) -> Iterator[Line]:
    """Yield the lines of a trace.

    Args:
        source: The name of the trace, for errors.

    Raises:
        MistifyError: INVALID_CONFIG, naming the line and the key.
    """
    previous = _PreviousLines()
    for number, text in enumerate(lines, 1):
        if not text.endswith(b"\n"):
            break
        line = _parsed(text, f"{source}, line {number}")
        if problem := previous.problem(line):
            raise invalid_config([problem], f"{source}, line {number}")
        yield previous.completed(line)
    if previous.moments == 0:
        fix = "record one with mistify monitor --record FILE"
        raise invalid_config([Problem(source, "no decision", "a trace of a monitor", fix)], source)


class _PreviousLines:
    """The lines of a trace so far, with which the next one has to agree.

    Attributes:
        moments: The number of moments so far.
    """

    def __init__(self) -> None:
        self.moments = 0
        self._run = False
        self._options: Options | None = None
        self._before: Moment | None = None

    def problem(self, line: Line) -> Problem | None:
        """Return the problem of the next line; None if there is none."""
        if isinstance(line, Run):
            return None
        if not self._run:
            return Problem("format", "nothing", "the beginning of a run", 'add {"format": 1, "started": ""}')
        options = line if isinstance(line, Options) else self._options
        if options is None:
            return Problem("options", "nothing", "the options of the package", "add a line with them")
        if isinstance(line, Moment) and self._before is not None and line.now <= self._before.now:
            expected = f"a later time than {self._before.now:.15g}, that of the line before"
            return Problem("now", f"{line.now:.15g}", expected, "sort the lines by time")
        ids = [option.id for option in options.options]
        if line.option in ids or (line.option is None and self._options is not None):
            return None
        value = "nothing" if line.option is None else f'"{line.option}"'
        return Problem("option", value, f"one of {listed(ids)}", "use one of these ids")

    def completed(self, line: Line) -> Line:
        """Include a line, and return it with the energies of the line before if it has none."""
        match line:
            case Run():
                self._run, self._options, self._before = True, None, None
            case Options():
                self._options = line
            case Moment():
                self.moments += 1
                if line.energies is None and self._before is not None:
                    line = line.model_copy(update={"energies": self._before.energies})
                self._before = line
        return line


def _parsed(text: bytes, source: str) -> Line:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = Problem("the line", "text that is not JSON", "an object", f"fix it: {error}")
        raise invalid_config([problem], source) from error
    if not isinstance(content, dict):
        problem = Problem("the line", type(content).__name__, "an object", "remove the line")
        raise invalid_config([problem], source)
    kind = kind_of(content)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise invalid_config(problems_of(error, kind, value=content), source) from error
