"""`.csv`: a header with column names, then a row for each example."""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from executors.data.errors import invalid
from executors.readers.columns import Row
from mistify.errors import Problem
from mistify.wording import counted

#: The csv module's message for a cell larger than `csv.field_size_limit()`.
_TOO_LONG: Final = "larger than field limit"


def csv_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file, in whose cells spaces separate several numbers.

    Raises:
        MistifyError: INVALID_DATASET, naming the row.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            columns = _columns(path, reader)
            for cells in reader:
                filled = [cell for name, cell in cells.items() if name is not None and cell is not None]
                if None in cells or len(filled) < columns:
                    count = len(filled) + len(cells.get(None) or ())
                    raise _bad_row(
                        path, reader.line_num, counted(count, "cell"), f"{columns}, as in the header"
                    )
                yield reader.line_num, dict(cells)
        except (csv.Error, UnicodeDecodeError) as error:
            row = reader.reader.line_num  # the DictReader still has the number of the last valid row
            if _TOO_LONG in str(error):
                actual = f"a cell of more than {csv.field_size_limit():,} characters"
                fix = "write the data as .jsonl or .npz"
                raise _bad_row(path, row, actual, "shorter cells", fix) from error
            raise _bad_row(path, row, f"text that is not valid CSV ({error})", "CSV in UTF-8") from error


def _columns(path: Path, reader: "csv.DictReader[str]") -> int:
    """Return the number of columns, after checking that their names are unique."""
    names = Counter(reader.fieldnames or ())
    for name, count in names.items():
        if count > 1:
            actual = f"{count} columns {f'named {name}' if name else 'without a name'}"
            fix = "rename or remove the others"
            raise _bad_row(path, reader.line_num, actual, "a different name for each column", fix)
    return len(names)


def _bad_row(path: Path, row: int, actual: str, expected: str, fix: str = "repair the row") -> Exception:
    return invalid(Problem(str(path), f"row {row}: {actual}", expected, fix))
