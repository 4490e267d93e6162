"""The reader of files that are tables: a row for each example, and columns named after inputs and outputs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from executors.data.dataset import Origin
from executors.readers.columns import Row, origins_of_table, read_columns, schema_of_table
from executors.readers.formats import Arrays, Reader, Request, Schema
from mistify.files.suffixes import suffix_of


class TableReader(Reader):
    """A reader of tables in one format.

    If no column is named after the only input, all columns except the target are its figures.

    Args:
        suffix: The suffix of files in this format.
        rows: Yields the rows of a file; raises `MistifyError` (INVALID_DATASET) for one that is invalid.
    """

    def __init__(self, suffix: str, rows: Callable[[Path], Iterator[Row]]) -> None:
        self._suffix = suffix
        self._rows = rows

    def accepts(self, path: Path) -> bool:
        """Check the suffix."""
        return suffix_of(path) == self._suffix

    def read(self, path: Path, request: Request) -> Arrays:
        """Return the columns as arrays."""
        return read_columns(path, self._rows(path), request)

    def schema(self, path: Path, request: Request) -> Schema:
        """Return the schema of all targets, and the other columns if none is named after the only input."""
        return schema_of_table(self._rows(path), request)

    def origins(self, path: Path, request: Request) -> Mapping[str, Origin]:
        """Return the inputs of token ids that are text in the first row."""
        return origins_of_table(self._rows(path), request)
