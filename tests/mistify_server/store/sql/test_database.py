"""Database connections concurrent with writing processes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from mistify_server.store.sql.database import Database
from mistify_server.store.sql.sqlite import SqliteBackend


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(SqliteBackend(tmp_path / "mistify.db"), busy_seconds=0.01)
    yield database
    database.close()


def test_new_connections_read_while_another_process_writes(database: Database, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mistify.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with database.read() as first, database.read() as second:
            counts = [session.scalar(text("SELECT count(*) FROM meta")) for session in (first, second)]
    assert counts == [2, 2]


def test_a_new_database_can_be_shrunk(database: Database) -> None:
    incremental = 2
    with database.read() as first, database.read() as second:
        modes = [session.scalar(text("PRAGMA auto_vacuum")) for session in (first, second)]
    assert modes == [incremental, incremental]
