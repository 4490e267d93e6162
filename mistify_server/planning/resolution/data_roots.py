"""The data roots: the only places that models and data are read from."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue

_MOST_SUGGESTIONS_FROM = 1000


class Wanted(Enum):
    """What a path may lead to."""

    FILE = "a file"
    DIRECTORY = "a directory"
    EITHER = "a file or directory"


@dataclass(frozen=True)
class DataRoots:
    """Directories below which models and data lie, with every symbolic link resolved."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, directories: Sequence[Path]) -> "DataRoots":
        """The roots in the order in which they are searched.

        Raises:
            MistifyError: NOT_FOUND, one of them is no directory.
        """
        for directory in directories:
            if not directory.is_dir():
                raise MistifyError(
                    ErrorCode.NOT_FOUND, f"the data root {directory} is no directory; make it or leave it out"
                )
        return cls(tuple(directory.resolve() for directory in directories))

    def find(self, given: str, wanted: Wanted = Wanted.FILE) -> Path:
        """What a path means: below the first root that has it, an absolute one below any root.

        Args:
            given: The path.
            wanted: What it may lead to.

        Raises:
            InvalidValue: there is no such file or directory, or it does not lie below a root.
        """
        expected = f"{wanted.value} below a data root ({self})"
        outside = False
        for candidate in self._candidates(given):
            path = Path(os.path.realpath(candidate))
            if not _is_there(wanted, path):
                continue
            if any(path.is_relative_to(root) for root in self.roots):
                return path
            outside = True
        if outside or (os.path.isabs(given) and not self._below_a_root(given)):
            raise InvalidValue(given, expected, "move it there, or serve its root")
        raise InvalidValue(given, expected, self._advice(given))

    def __str__(self) -> str:
        return ", ".join(map(str, self.roots)) or "the server has none: --data-root DIR"

    def _candidates(self, given: str) -> Iterator[str]:
        if "\0" in given:
            return
        if os.path.isabs(given):
            yield given
            return
        for root in self.roots:
            yield os.path.join(root, given)

    def _below_a_root(self, given: str) -> bool:
        path = Path(os.path.normpath(given))
        return any(path.is_relative_to(root) for root in self.roots)

    def _advice(self, given: str) -> str:
        """Names of files beside the one that is missing that look like it."""
        name = os.path.basename(given)
        for candidate in self._candidates(given):
            close = get_close_matches(name, self._names_in(os.path.dirname(candidate)), n=1)
            if close:
                return f'did you mean "{os.path.join(os.path.dirname(given), close[0])}"?'
        return "check the path; a relative one is looked up below every root"

    def _names_in(self, directory: str) -> list[str]:
        """Names in a directory, none if it does not lie below a root or cannot be listed."""
        real = Path(os.path.realpath(directory))
        if not any(real.is_relative_to(root) for root in self.roots):
            return []
        with suppress(OSError):
            return sorted(os.listdir(real))[:_MOST_SUGGESTIONS_FROM]
        return []


def _is_there(wanted: Wanted, path: Path) -> bool:
    # `Path.is_file` raises on names that are too long.
    return (wanted is not Wanted.DIRECTORY and os.path.isfile(path)) or (
        wanted is not Wanted.FILE and os.path.isdir(path)
    )
