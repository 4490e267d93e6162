"""What a package has to keep to on its device: targets of the config, and those set while the daemon runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError

from mistify.config.porting import Figure
from mistify.errors import Problem, invalid_config
from mistify.files import write_json
from mistify.parsing.quantities import Quantity, format_bytes, format_time, parse_bytes, parse_time
from mistify.parsing.validation import InvalidValue, Settings, problems_of
from mistify_client.monitor.state.state import stamp


def _absolute(quantity: Quantity, given: object, example: str) -> float:
    if quantity.relative:
        raise InvalidValue(
            given, f'a limit such as "{example}"', "give a number with its unit: no source is here"
        )
    return quantity.value


Milliseconds = Annotated[
    float,
    PlainValidator(lambda given: _absolute(parse_time(given), given, "20ms")),
    PlainSerializer(format_time),
]
ByteCount = Annotated[
    float,
    PlainValidator(lambda given: _absolute(parse_bytes(given), given, "20MB")),
    PlainSerializer(format_bytes),
]


class Targets(Settings):
    """Limits of one inference on the device, None where there is none.

    Attributes:
        latency: the most milliseconds.
        accuracy: what the package's metric has to reach at the least; of `mse`, at the most.
        memory: the most bytes of the branch that runs, by the cost model.
    """

    latency: Milliseconds | None = Field(default=None, description='a time such as "20ms"', examples=["20ms"])
    accuracy: Figure | None = Field(default=None, description='a share such as "80%"', examples=["80%"])
    memory: ByteCount | None = Field(default=None, description='bytes such as "2MB"', examples=["2MB"])

    def replaced(self, changes: Mapping[str, object]) -> "Targets":
        """These targets with some of them set anew, or lifted by None.

        Raises:
            ValidationError: a change is no target.
        """
        return Targets.model_validate(self.model_dump(exclude_none=True) | dict(changes))


class LiveTargets:
    """The targets of a config, overridden by a file that may change at any time.

    Args:
        configured: the targets where the file sets none.
        path: of the file.
    """

    def __init__(self, configured: Targets, path: Path) -> None:
        self._configured = configured
        self._path = path
        self._read: tuple[int, int] | None = None
        self.current = configured

    def refresh(self) -> bool:
        """Read the file again where it is another one; whether it was.

        Raises:
            MistifyError: INVALID_CONFIG, the file says no targets; those before stay.
        """
        found = stamp(self._path)
        if found == self._read:
            return False
        self._read = found
        self.current = self._configured.replaced(read_changes(self._path))
        return True


def parse_changes(assignments: Sequence[str]) -> dict[str, str | None]:
    """Changes from texts such as `latency=20ms`; `latency=none` lifts a target.

    Raises:
        MistifyError: INVALID_CONFIG with everything that is wrong.
    """
    problems = [
        Problem("target", repr(text), "NAME=VALUE", "write for example latency=20ms")
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
    """The changes that `write_changes` has kept; none where there are none.

    Raises:
        MistifyError: INVALID_CONFIG, the file says something else.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        fix = "start over with mistify target --reset"
        raise invalid_config([Problem(str(path), "something else", "an object of targets", fix)], str(path))
    _check(content, str(path))
    return content


def write_changes(path: Path, changes: Mapping[str, str | None]) -> None:
    """Keep changes, so that a reader finds the old or the new ones, nothing between; power cuts included."""
    write_json(path, dict(changes), durable=True)


def _check(changes: Mapping[str, object], source: str) -> None:
    try:
        Targets.model_validate(changes)
    except ValidationError as error:
        raise invalid_config(problems_of(error, Targets), source) from error
