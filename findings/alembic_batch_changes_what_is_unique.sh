#!/usr/bin/env bash
# Alembic 1.20.1 with SQLAlchemy 2.1.9: a batch migration of a SQLite table changes which rows count as duplicates.
#
# Expected: a migration that drops one column leaves the constraints on all others as they are, as SQLite's own ALTER
# TABLE does.
# Observed: the table is made again from what SQLAlchemy reads of it, without a warning. `name VARCHAR(20) UNIQUE` is no
# longer unique, since a length between the name and the word UNIQUE hides the latter. A partial unique index whose
# condition takes two lines keeps the first line alone, so that rows that were allowed are refused. A column with
# COLLATE NOCASE is compared by case from then on.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet alembic==1.20.1 sqlalchemy==2.1.9
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import sqlite3
import warnings

import alembic
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

print("alembic", alembic.__version__, "sqlalchemy", sa.__version__, "sqlite", sqlite3.sqlite_version)

#: What is unique -> how the table is made, a row that it holds, and another row.
TABLES = {
    "a column with a length": (
        "CREATE TABLE t (name VARCHAR(20) UNIQUE, kind INTEGER, old INTEGER)",
        ("ann", 1),
        ("ann", 2),
    ),
    "a partial index on two lines": (
        """CREATE TABLE t (name TEXT, kind INTEGER, old INTEGER);
        CREATE UNIQUE INDEX some ON t (name)
        WHERE name IS NOT NULL
        AND kind = 1""",
        ("ann", 2),
        ("ann", 3),
    ),
    "a column without case": (
        "CREATE TABLE t (name TEXT COLLATE NOCASE UNIQUE, kind INTEGER, old INTEGER)",
        ("ann", 1),
        ("ANN", 2),
    ),
}


def by_alembic(connection):
    with Operations(MigrationContext.configure(connection)).batch_alter_table("t") as batch:
        batch.drop_column("old")


def by_sqlite(connection):
    connection.exec_driver_sql("ALTER TABLE t DROP COLUMN old")


def accepts(statements, held, other, migrate):
    """Return whether the table, once a column is dropped, accepts another row besides the one that it holds."""
    with sa.create_engine("sqlite://").connect() as connection:
        for statement in statements.split(";"):
            connection.exec_driver_sql(statement)
        migrate(connection)
        insert = "INSERT INTO t (name, kind) VALUES (?, ?)"
        connection.exec_driver_sql(insert, held)
        try:
            connection.exec_driver_sql(insert, other)
        except sa.exc.IntegrityError:
            return False
        return True


for what, (statements, held, other) in TABLES.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        accepted_after = {
            migrate.__name__: accepts(statements, held, other, migrate) for migrate in (by_sqlite, by_alembic)
        }
    print(f"{what}: {other} beside {held} is accepted: {accepted_after}, warnings: {len(caught)}")
    assert accepted_after["by_sqlite"] is (what == "a partial index on two lines")
    assert accepted_after["by_alembic"] is not accepted_after["by_sqlite"]
    assert not caught
PYTHON
