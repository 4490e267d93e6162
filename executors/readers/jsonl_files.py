"""`.jsonl`: one object per example, each on its own line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from executors.data.dataset import Origin
from executors.data.errors import invalid
from executors.readers.columns import Row, origins_of_table, read_columns, schema_of_table
from executors.readers.formats import Arrays, Reader, Request, Schema
from mistify.errors import Problem


class JsonlReader(Reader):
    """A reader of keys named after the inputs and outputs: numbers, lists, class names, text or words."""

    def accepts(self, path: Path) -> bool:
        """Check the suffix."""
        return path.suffix == ".jsonl"

    def read(self, path: Path, request: Request) -> Arrays:
        """Return the values of each key as an array."""
        return read_columns(path, _rows(path), request)

    def schema(self, path: Path, request: Request) -> Schema:
        """Return the schema of all targets, and the other keys if none is named after the only input."""
        return schema_of_table(_rows(path), request)

    def origins(self, path: Path, request: Request) -> Mapping[str, Origin]:
        """Return the inputs of token ids that are text in the first row."""
        return origins_of_table(_rows(path), request)


def _rows(path: Path) -> Iterator[Row]:
    keys = None
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                cells = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _bad_row(
                    path, number, f"text that is not valid JSON ({error})", "an object on each line"
                ) from error
            if not isinstance(cells, dict):
                raise _bad_row(path, number, f"a {type(cells).__name__}", "an object on each line")
            keys = keys or set(cells)
            if missing := sorted(keys - set(cells)):
                raise _bad_row(path, number, f"no {missing[0]}", "the keys of the first row")
            yield number, cells


def _bad_row(path: Path, row: int, actual: str, expected: str) -> Exception:
    return invalid(Problem(str(path), f"row {row}: {actual}", expected, "repair the row"))
