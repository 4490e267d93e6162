"""The SQLite file of a store and its transactions."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from mistify_server.store.sql.failures import translated
from mistify_server.store.sql.migrations.migrate import VERSION_KEY, version_rows
from mistify_server.store.sql.schema import MetaRow, Table

#: Statements that shrink the file: a commit in full mode moves all pages at once, whereas
#: `PRAGMA incremental_vacuum` takes quadratic time.
_SHRINKING = (
    "PRAGMA auto_vacuum = FULL",
    "BEGIN IMMEDIATE",
    "COMMIT",
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA wal_checkpoint(TRUNCATE)",
)


class Database:
    """Transactions on one SQLite file (WAL, every commit synced), with one writer at a time."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._writer = self._engine.execution_options(begin="BEGIN IMMEDIATE")
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path, busy_seconds: float) -> "Database":
        """Open a database with the current schema, or create one.

        Args:
            busy_seconds: Seconds that a call waits for other processes before it fails with UNAVAILABLE.

        Raises:
            MistifyError: STORE_VERSION, the file is not a store; UNAVAILABLE, it cannot be read or written.
        """
        engine = create_engine(
            f"sqlite:///{path}",
            connect_args={"timeout": busy_seconds},
            json_serializer=_json,
            json_deserializer=from_json,
        )
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        database = cls(path, engine)
        try:
            with database.write() as session:
                Table.metadata.create_all(session.connection(), tables=[Table.metadata.tables["meta"]])
                if session.get(MetaRow, VERSION_KEY) is None:
                    Table.metadata.create_all(session.connection())
                    session.add_all(MetaRow(key=key, value=value) for key, value in version_rows())
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a read-only session with a consistent snapshot of the store."""
        with translated(self._path.parent), Session(self._engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Yield a session that is committed at the end of the block, or rolled back on an error."""
        with self._writing, translated(self._path.parent), Session(self._writer) as session, session.begin():
            yield session

    def shrink(self) -> int:
        """Release the disk space of removed rows, and return the number of bytes freed."""
        before = self._path.stat().st_size
        with self._writing, translated(self._path.parent), closing(self._engine.raw_connection()) as raw:
            for statement in _SHRINKING:
                raw.cursor().execute(statement).fetchall()
        return max(0, before - self._path.stat().st_size)

    def faults(self) -> list[str]:
        """Return what SQLite finds wrong with the file, and rows that refer to missing ones."""
        with self.read() as session:
            connection = session.connection()
            complaints = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check")]
            orphans = connection.exec_driver_sql("PRAGMA foreign_key_check")
            links = [
                f"row {row} of {table} refers to a missing row of {other}" for table, row, other, _ in orphans
            ]
        return [fault for fault in complaints if fault != "ok"] + links

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _json(value: object) -> str:
    """Return a value as JSON, with infinite numbers as `Infinity`."""
    return to_json(value, inf_nan_mode="constants").decode()


def _set_up(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says
    connection.create_function(
        "casefold", 1, str.casefold, deterministic=True
    )  # SQLite's lower() is for ASCII
    # Setting the mode waits for writers, and only affects new files. `migrate.make_shrinkable` rewrites files
    # created by older versions.
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    for pragma in ("foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
