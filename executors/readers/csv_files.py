"""`.csv`: a header with column names, then a row for each example."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from executors.data.dataset import Origin
from executors.data.errors import invalid
from executors.readers.columns import Row, origins_of_table, read_columns, schema_of_table
from executors.readers.formats import Arrays, Reader, Request, Schema
from mistify.errors import Problem
from mistify.wording import counted

#: The csv module's message for a cell larger than `csv.field_size_limit()`.
_TOO_LONG: Final = "larger than field limit"


class CsvReader(Reader):
    """A reader of columns named after inputs and outputs; spaces separate several numbers in a cell.

    If no column is named after the only input, all columns except the target are its figures.
    """

    def accepts(self, path: Path) -> bool:
        """Check the suffix."""
        return path.suffix == ".csv"

    def read(self, path: Path, request: Request) -> Arrays:
        """Return the columns as arrays."""
        return read_columns(path, _rows(path), request)

    def schema(self, path: Path, request: Request) -> Schema:
        """Return the schema of all targets, and the other columns if none is named after the only input."""
        return schema_of_table(_rows(path), request)

    def origins(self, path: Path, request: Request) -> Mapping[str, Origin]:
        """Return the inputs of token ids that are text in the first row."""
        return origins_of_table(_rows(path), request)


def _rows(path: Path) -> Iterator[Row]:
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
