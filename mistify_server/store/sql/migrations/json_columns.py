"""Changes of the JSON objects in the columns of a table."""

import json
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any


def change_json(
    connection: Connection, table: str, column: str, change: Callable[[dict[str, Any]], None]
) -> None:
    """Apply a function to the JSON object, if any, in a column of every row."""
    rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608 (our own names)
    for row, text in rows:
        value = None if text is None else json.loads(text)
        if value is not None:
            change(value)
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (json.dumps(value), row))  # noqa: S608
