"""What only stores in SQLite have."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job, JobState
from mistify_server.store.changes import Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.sqlite import SqliteBackend


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(SqliteBackend(tmp_path / "mistify.db"), busy_seconds=0.01)
    yield database
    database.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        yield opened


def test_new_connections_read_while_another_process_writes(database: Database, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mistify.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with database.read() as first, database.read() as second:
            counts = [session.scalar(text("SELECT count(*) FROM meta")) for session in (first, second)]
    assert counts == [2, 2]


def test_the_version_changes_with_each_commit_of_any_process(database: Database, tmp_path: Path) -> None:
    changed = "INSERT INTO meta VALUES ('{}', '')"
    versions = [database.version()]
    with database.write() as session:
        session.execute(text(changed.format("own")))
    versions.append(database.version())
    with closing(sqlite3.connect(tmp_path / "mistify.db")) as other, other:
        other.execute(changed.format("other"))
    versions.append(database.version())
    with database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM meta")) == 4
    assert len(set(versions)) == 3
    assert database.version() == versions[-1]


def test_a_new_database_can_be_shrunk(database: Database) -> None:
    incremental = 2
    with database.read() as first, database.read() as second:
        modes = [session.scalar(text("PRAGMA auto_vacuum")) for session in (first, second)]
    assert modes == [incremental, incremental]


def test_every_commit_is_synced(store: Store) -> None:
    database = store.jobs._database  # type: ignore[attr-defined]
    with database.read() as session:
        connection = session.connection()
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_the_error_for_a_store_of_a_newer_version_says_what_to_do(tmp_path: Path) -> None:
    with open_store(tmp_path):
        pass
    with sqlite3.connect(tmp_path / "mistify.db") as connection:
        connection.execute("UPDATE meta SET value = '99'")
    with pytest.raises(MistifyError, match="schema is 99") as raised, open_store(tmp_path):
        pass
    assert raised.value.code is ErrorCode.STORE_VERSION


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mistify.db").write_text("hello" * 1000)
    with pytest.raises(MistifyError, match="not a database") as raised, open_store(tmp_path):
        pass
    assert raised.value.code is ErrorCode.STORE_VERSION


def test_a_full_disk_is_explained(store: Store) -> None:
    database = store.jobs._database  # type: ignore[attr-defined]
    with database.read() as session:
        pages = session.connection().exec_driver_sql("PRAGMA page_count").scalar()
        session.connection().exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(MistifyError, match="full disk") as raised:
        store.jobs.create(Submission(Job("j", JobState.QUEUED, (), 5), [], "x" * 1_000_000, None))
    assert raised.value.code is ErrorCode.UNAVAILABLE


def test_a_store_that_cannot_be_created_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MistifyError, match="cannot be used"), open_store(tmp_path / "file" / "store"):
        pass


def test_others_write_while_the_database_shrinks(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.write() as session:
        session.execute(text("CREATE TABLE large (content TEXT)"))
        for _ in range(200):
            session.execute(text("INSERT INTO large VALUES (zeroblob(4000))"))
    with database.write() as session:
        session.execute(text("DELETE FROM large"))
    monkeypatch.setattr("mistify_server.store.sql.sqlite._RELEASED_PAGES", 1)
    begun, written = threading.Event(), threading.Event()

    def pause(_seconds: float) -> None:
        begun.set()
        assert written.wait(60)

    monkeypatch.setattr("mistify_server.store.sql.database.time", SimpleNamespace(sleep=pause))
    with ThreadPoolExecutor() as threads:
        shrinking = threads.submit(database.shrink)
        assert begun.wait(60)
        with database.write() as session:
            session.execute(text("INSERT INTO large VALUES ('new')"))
            assert session.scalar(text("PRAGMA freelist_count"))
        written.set()
        assert shrinking.result() > 190 * 4_000
    assert (tmp_path / "mistify.db").stat().st_size < 500_000
    assert database.shrink() == 0
