"""Steps between schema versions, in order; each changes the database of one version into the next.

A step of a released version is never changed. It uses neither the tables of `schema` nor the models of the
domain, which go on changing: only SQL, and JSON as plain objects. Foreign keys are not enforced while steps
run, so that tables can be rebuilt; they are checked after the last one.
"""

import json
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any, TypeAlias

Step: TypeAlias = Callable[[Connection], None]


def rename_prospects(connection: Connection) -> None:
    """Rename the key `prospects` of plans to `estimates`."""

    def rename(plan: dict[str, Any]) -> None:
        plan["estimates"] = plan.pop("prospects")

    _change_json(connection, "batches", "plan", rename)


#: The version that the first step starts from. Stores of older ones cannot be opened.
OLDEST = 13

STEPS: tuple[Step, ...] = (
    rename_prospects,  # to 14
)


def _change_json(
    connection: Connection, table: str, column: str, change: Callable[[dict[str, Any]], None]
) -> None:
    """Change the JSON object in a column of every row in place, where there is one."""
    rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608 (our own names)
    for row, text in rows:
        value = None if text is None else json.loads(text)
        if value is not None:
            change(value)
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (json.dumps(value), row))  # noqa: S608
