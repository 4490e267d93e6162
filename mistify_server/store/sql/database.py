"""The SQLite file of a store: opening it, its version, its transactions."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.sql.schema import SCHEMA_VERSION, MetaRow, Table

_BUSY_SECONDS = 30
_VERSION_KEY = "schema_version"


class Database:
    """Transactions on one SQLite file (WAL, every commit synced); one writes at a time."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._writer = self._engine.execution_options(begin="BEGIN IMMEDIATE")
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "Database":
        """Open a database, or make a new one.

        Raises:
            MistifyError: STORE_VERSION, it is of a newer version, or no store at all; UNAVAILABLE, it
                cannot be read or written.
        """
        engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": _BUSY_SECONDS})
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        database = cls(path, engine)
        try:
            with database.write() as session:
                Table.metadata.create_all(session.connection(), tables=[Table.metadata.tables["meta"]])
                version = session.get(MetaRow, _VERSION_KEY)
                if version is None:
                    Table.metadata.create_all(session.connection())
                    session.add(MetaRow(key=_VERSION_KEY, value=str(SCHEMA_VERSION)))
                else:
                    _check_version(version.value, path)
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that sees one state of the store and changes nothing."""
        with self._translated(), Session(self._engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that is committed at the end, and rolled back when an error leaves it."""
        with self._writing, self._translated(), Session(self._writer) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            raise self._explained(error) from error

    def _explained(self, error: DatabaseError) -> Exception:
        """A disk's failure as what the operator has to do; a failure of the program as it is."""
        code = getattr(error.orig, "sqlite_errorcode", None)
        advice = _ADVICE.get(code & 0xFF) if code is not None else None
        if advice is None:
            return error
        error_code, text = advice
        return MistifyError(error_code, f"the store {self._path.parent} {text}")


_ADVICE = {
    sqlite3.SQLITE_FULL: (
        ErrorCode.UNAVAILABLE,
        "is on a full disk; free space, then start the server again",
    ),
    sqlite3.SQLITE_READONLY: (ErrorCode.UNAVAILABLE, "is read-only; give the server write access to it"),
    sqlite3.SQLITE_PERM: (ErrorCode.UNAVAILABLE, "cannot be accessed; give the server write access to it"),
    sqlite3.SQLITE_CANTOPEN: (ErrorCode.UNAVAILABLE, "cannot be opened; give the server write access to it"),
    sqlite3.SQLITE_IOERR: (
        ErrorCode.UNAVAILABLE,
        "cannot be read or written; check its disk, then start the server again",
    ),
    sqlite3.SQLITE_BUSY: (ErrorCode.UNAVAILABLE, "is busy with another process; try again later"),
    sqlite3.SQLITE_CORRUPT: (ErrorCode.STORE_VERSION, "is damaged; restore a backup or use another --store"),
    sqlite3.SQLITE_NOTADB: (
        ErrorCode.STORE_VERSION,
        "holds a mistify.db that is no database; use another --store",
    ),
}


def _set_up(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says
    for pragma in ("foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _check_version(version: str, path: Path) -> None:
    if version != str(SCHEMA_VERSION):
        raise MistifyError(
            ErrorCode.STORE_VERSION,
            f"the store {path.parent} was written by another version of mistify (its schema is {version}, "
            f"this version knows {SCHEMA_VERSION}); run the version that wrote it, or use another --store",
        )
