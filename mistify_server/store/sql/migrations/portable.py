"""Changes of a schema in SQLite and PostgreSQL, for migration steps."""

from typing import Any

from sqlalchemy import Column, Connection, Table, text
from sqlalchemy.schema import CreateColumn

from mistify_server.store.sql.migrations.json_columns import Change, changed_json


def add_column(connection: Connection, table: str, column: Column[Any]) -> None:
    """Add a column to a table, with the types of `mistify_server.store.sql.columns`."""
    specification = CreateColumn(column).compile(dialect=connection.dialect)
    connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {specification}"))


def recreate(connection: Connection, table: Table, **added: str) -> None:
    """Replace a table to which no other one refers by one with other keys; the rows are kept.

    Args:
        table: The new table.
        added: Text columns that the old table does not have -> their values in all rows.
    """
    name, kept = table.name, [column.name for column in table.columns if column.name not in added]
    columns = ", ".join([*added, *kept])
    values = ", ".join([*(f"'{value}'" for value in added.values()), *kept])
    copy = f"INSERT INTO {name} ({columns}) SELECT {values} FROM {name}_before"  # noqa: S608 (our own names)
    connection.execute(text(f"CREATE TABLE {name}_before AS SELECT * FROM {name}"))  # noqa: S608
    connection.execute(text(f"DROP TABLE {name}"))
    table.create(connection)
    connection.execute(text(copy))
    connection.execute(text(f"DROP TABLE {name}_before"))


def change_json(connection: Connection, table: str, column: str, change: Change) -> None:
    """Apply a function to the JSON object, if any, in a column of every row."""
    place, wanted = (
        ("rowid", ":row") if connection.dialect.name == "sqlite" else ("ctid", "CAST(:row AS tid)")
    )
    update = text(f"UPDATE {table} SET {column} = :value WHERE {place} = {wanted}")  # noqa: S608 (our own names)
    for row, content in connection.execute(text(f"SELECT {place}, {column} FROM {table}")).all():  # noqa: S608
        value = changed_json(content, change)
        if value is not None:
            connection.execute(update, {"row": row, "value": value})
