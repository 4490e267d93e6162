"""The paths of a store's files in its rows, which change when the store moves."""

from pathlib import Path
from typing import Final

from sqlalchemy import Text, func, type_coerce, update

from mistify_server.store.sql.columns import Position, json_text
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.schema import BatchRow, MetaRow

#: Key of the row in the table `meta` with the directory of the store when a server last used it.
_KEY: Final = "directory"


def follow_directory(database: Database, directory: Path) -> None:
    """Record the directory of a store, and correct the paths of its files if it was another one before.

    Plans and sources name uploads, and models of the repository, by their paths. Unfinished jobs continue
    with them, also when a backup is served in place of a lost store.
    """
    with database.write() as session:
        row = session.get(MetaRow, _KEY)
        if row is None:
            session.add(MetaRow(key=_KEY, value=str(directory)))
        elif row.value != str(directory):
            before, after = (_start_of_paths(path) for path in (row.value, str(directory)))
            for column in (BatchRow.plan, BatchRow.root):
                text = type_coerce(column, Text)
                moved = update(BatchRow).where(Position(text, before) > 0)
                session.execute(moved.values({column: func.replace(text, before, after)}))
            row.value = str(directory)


def _start_of_paths(directory: str) -> str:
    """Return how the path of a file in a directory begins in JSON."""
    return json_text(f"{directory}/")[:-1]
