"""`.jsonl`: one object per example, each on its own line."""

import json
from collections.abc import Iterator
from pathlib import Path

from executors.data.errors import invalid
from executors.readers.columns import Row
from mistify.errors import Problem


def jsonl_rows(path: Path) -> Iterator[Row]:
    """Yield the objects of a file: numbers, lists, class names, text or words.

    Raises:
        MistifyError: INVALID_DATASET, naming the row.
    """
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
