"""Targets of a package on its device: from the config, with overrides while the daemon runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError

from mistify.config.adaptation_goal import Figure
from mistify.config.data.metric import Metric
from mistify.errors import Problem, invalid_config
from mistify.files.writing import write_json
from mistify.parsing.quantities import (
    format_bytes,
    format_energy,
    format_time,
    parse_millijoules,
    parse_milliseconds,
    parse_size,
)
from mistify.parsing.validation import Settings, problems_of
from mistify_client.monitor.state.state import stamp

__all__ = ["Targets"]


Milliseconds = Annotated[float, PlainValidator(parse_milliseconds), PlainSerializer(format_time)]
ByteCount = Annotated[float, PlainValidator(parse_size), PlainSerializer(format_bytes)]
Millijoules = Annotated[float, PlainValidator(parse_millijoules), PlainSerializer(format_energy)]


class Targets(Settings):
    """Limits of one inference on the device; None means no limit.

    Attributes:
        latency: Upper limit in milliseconds.
        accuracy: Lower limit on the package's metric; for an error (`mse`, `mae`, and names that end in
            `_error`), the upper limit.
        memory: Upper limit in bytes for the current option, by the cost model.
        energy: Upper limit in millijoules; options whose energy is unknown count as within it.
    """

    latency: Milliseconds | None = Field(default=None, description='a time such as "20ms"', examples=["20ms"])
    accuracy: Figure | None = Field(default=None, description='a share such as "80%"', examples=["80%"])
    memory: ByteCount | None = Field(default=None, description='bytes such as "2MB"', examples=["2MB"])
    energy: Millijoules | None = Field(default=None, description='an energy such as "2mJ"', examples=["2mJ"])

    def replaced(self, changes: Mapping[str, object]) -> "Targets":
        """Return a copy of these targets with changes.

        Args:
            changes: Target name -> new value; None removes the target.

        Raises:
            ValidationError: A change is not a valid target.
        """
        return Targets.model_validate(self.model_dump(exclude_none=True) | dict(changes))


def check_accuracy(targets: Targets, metric: Metric, source: str) -> None:
    """Check that an accuracy target is reachable.

    Args:
        source: The origin of the targets, for errors.

    Raises:
        MistifyError: INVALID_CONFIG, it is above 1 although the metric is a share.
    """
    figure = targets.accuracy
    if figure is not None and figure > 1 and metric.is_share:
        fix = f'write "{figure:g}%"' if figure <= 100 else "lower it"
        problem = Problem("accuracy", f"{figure:g}", f"{metric}, a share above 0 and up to 1", fix)
        raise invalid_config([problem], source)


class LiveTargets:
    """Targets of a config, overridden by a file that may change at any time.

    Args:
        configured: The targets if the file sets none.
        path: The file written by `write_changes`.

    Attributes:
        current: The targets currently in force.
    """

    def __init__(self, configured: Targets, path: Path) -> None:
        self._configured = configured
        self._path = path
        self._read: tuple[int, int] | None = None
        self.current = configured

    def refresh(self) -> bool:
        """Reload the file if it has changed.

        Returns:
            True if the file has changed.

        Raises:
            MistifyError: INVALID_CONFIG, the file contains invalid targets; the previous targets are kept.
        """
        latest = stamp(self._path)
        if latest == self._read:
            return False
        self._read = latest
        self.current = self._configured.replaced(read_changes(self._path))
        return True


def parse_changes(assignments: Sequence[str]) -> dict[str, str | None]:
    """Parse changes such as `latency=20ms`; `latency=none` removes a target.

    Raises:
        MistifyError: INVALID_CONFIG with every problem of the texts.
    """
    problems = [
        Problem("target", repr(text), "NAME=VALUE", "for example latency=20ms")
        for text in assignments
        if "=" not in text
    ]
    if problems:
        raise invalid_config(problems, "the targets")
    pairs = (text.split("=", 1) for text in assignments)
    changes = {name.strip(): None if value.strip() == "none" else value.strip() for name, value in pairs}
    _check(changes, "the targets")
    return changes


def read_changes(path: Path) -> dict[str, str | None]:
    """Return the changes written by `write_changes`; an empty mapping if there is no file.

    Raises:
        MistifyError: INVALID_CONFIG, the file contains invalid changes.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        fix = "start over with mistify target --reset"
        raise invalid_config([Problem(str(path), "something else", "an object of targets", fix)], str(path))
    _check(content, str(path))
    return content


def write_changes(path: Path, changes: Mapping[str, str | None]) -> None:
    """Write changes to a file atomically: readers see the old or the new ones, even after a power cut."""
    write_json(path, dict(changes), durable=True)


def _check(changes: Mapping[str, object], source: str) -> None:
    try:
        Targets.model_validate(changes)
    except ValidationError as error:
        raise invalid_config(problems_of(error, Targets, value=changes), source) from error
