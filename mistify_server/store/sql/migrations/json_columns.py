"""Changes of the JSON objects in the columns of a table, with a connection of Python's `sqlite3`.

Steps with a connection of SQLAlchemy use `portable` instead.
"""

import json
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any, TypeAlias

#: Changes an object in place.
Change: TypeAlias = Callable[[dict[str, Any]], None]


def change_json(connection: Connection, table: str, column: str, change: Change) -> None:
    """Apply a function to the JSON object, if any, in a column of every row."""
    rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608 (our own names)
    for row, content in rows:
        value = changed_json(content, change)
        if value is not None:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))  # noqa: S608


def changed_json(content: str | None, change: Change) -> str | None:
    """Return a JSON object after a change; None if the column is empty or has `null`."""
    value = None if content is None else json.loads(content)
    if value is None:
        return None
    change(value)
    return json.dumps(value)
