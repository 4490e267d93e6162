"""Metrics and losses from a file of the user's own, written as `FILE.py:NAME`."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from mistify.config.data.metric import Metric
from mistify.parsing.validation import InvalidValue, Keys, Settings, together

#: The name is that of the metric or the loss from there on.
_FILE_AND_NAME: Final = re.compile(r"(?P<path>.+\.py):(?P<name>[a-z][a-z0-9_]{0,63})")


class CodeFile(Settings):
    """A Python file with metrics or losses.

    Attributes:
        path: The file.
        sha256: In hex, once a server has found the file; None in a user's config.
    """

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="the name of a Python file", examples=["losses.py"]
    )
    sha256: str | None = None


def named_in_file(text: object) -> tuple[str, str] | None:
    """Return the file and the name in `FILE.py:NAME`; None for any other value."""
    match = _FILE_AND_NAME.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (match["path"], match["name"])


def with_code_apart(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of data with names in place of each `FILE.py:NAME`, and the files by name.

    Raises:
        ValidationError: Two files have the same name, or one has the name of a metric of Mistify's own.
    """
    apart, code = dict(settings), dict(settings.get("code") or {})
    mistakes: list[tuple[Keys, InvalidValue]] = []
    for place, value in _named(settings):
        file_and_name = named_in_file(value)
        if file_and_name is None:
            continue
        path, name = file_and_name
        if name in Metric.__members__.values():
            expected = f"another name than {name}, a metric of Mistify's own"
            mistakes.append((place, InvalidValue(value, expected, "rename it")))
        elif code.setdefault(name, {"path": path}) != {"path": path}:
            mistakes.append(
                (place, InvalidValue(value, f"one file that has {name}", "rename one of the two"))
            )
        key, *output = place
        apart[key] = {**apart[key], output[0]: name} if output else name
    if mistakes:
        raise together("DataSettings", mistakes)
    return {**apart, "code": code} if code else apart


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the metrics and losses that settings name, with their places."""
    yield ("metric",), settings.get("metric")
    for key in ("metrics", "losses"):
        by_output = settings.get(key)
        for output, value in by_output.items() if isinstance(by_output, Mapping) else ():
            yield (key, output), value
