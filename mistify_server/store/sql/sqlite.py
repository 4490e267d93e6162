"""SQLite as the database of a store: a file in its directory."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic_core import from_json
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import sync_path, write_bytes
from mistify_server.store.sql.backend import BUSY_SECONDS, CONNECTIONS, Backend, Role
from mistify_server.store.sql.columns import json_text
from mistify_server.store.sql.migrations.steps import OLDEST

#: Name of the file in the directory of a store.
DATABASE: Final = "mistify.db"

#: Suffixes of SQLite's files beside a database.
_BESIDE: Final = ("-wal", "-shm")

#: Number of pages that are released at a time: a megabyte, while nobody else writes.
_RELEASED_PAGES: Final = 256

_ADVICE: Final = {
    sqlite3.SQLITE_FULL: (ErrorCode.UNAVAILABLE, "is on a full disk; free space"),
    sqlite3.SQLITE_READONLY: (ErrorCode.UNAVAILABLE, "is read-only; give the server write access to it"),
    sqlite3.SQLITE_PERM: (ErrorCode.UNAVAILABLE, "cannot be accessed; give the server write access to it"),
    sqlite3.SQLITE_CANTOPEN: (ErrorCode.UNAVAILABLE, "cannot be opened; give the server write access to it"),
    sqlite3.SQLITE_IOERR: (ErrorCode.UNAVAILABLE, "cannot be read or written; check its disk"),
    sqlite3.SQLITE_BUSY: (ErrorCode.UNAVAILABLE, "is busy with another process; try again later"),
    sqlite3.SQLITE_CORRUPT: (ErrorCode.STORE_VERSION, "is damaged; restore a backup or use another --store"),
    sqlite3.SQLITE_NOTADB: (
        ErrorCode.STORE_VERSION,
        f"holds a {DATABASE} that is not a database; use another --store",
    ),
}

_log = logging.getLogger(__name__)


class SqliteBackend(Backend):
    """A SQLite file (WAL, every commit synced)."""

    remote = False
    oldest = OLDEST
    read_options: ClassVar[dict[str, Any]] = {"begin": "BEGIN"}
    statement_options = read_options
    write_options: ClassVar[dict[str, Any]] = {"begin": "BEGIN IMMEDIATE"}

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    @override
    def name(self) -> str:
        return f"the store {self._path.parent}"

    @override
    def locked(self, role: Role) -> AbstractContextManager[None]:
        if role is Role.JOINED:
            raise MistifyError(
                ErrorCode.INVALID_CONFIG,
                f"{self.name} has its database in {DATABASE}, which one server uses at a time; omit --join, "
                "or use a store with --database postgresql://...",
            )
        return super().locked(role)

    @override
    def exists(self) -> bool:
        return self._path.exists()

    @override
    def engine(self, busy_seconds: float) -> Engine:
        size, overflow = CONNECTIONS
        engine = create_engine(
            f"sqlite:///{self._path}",
            connect_args={"timeout": busy_seconds},
            pool_size=size,
            max_overflow=overflow,
            hide_parameters=True,
            json_serializer=json_text,
            json_deserializer=from_json,
        )
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        return engine

    @override
    def migration_engine(self) -> Engine:
        engine = create_engine(
            f"sqlite:///{self._path}",
            connect_args={"timeout": BUSY_SECONDS},
            poolclass=NullPool,
            hide_parameters=True,
        )
        event.listen(engine, "connect", _begin_explicitly)
        event.listen(engine, "begin", _begin)
        return engine

    @override
    def failure(self, error: BaseException) -> MistifyError | None:
        cause = error.orig if isinstance(error, DatabaseError) else error
        code = getattr(cause, "sqlite_errorcode", None)
        advice = None if code is None else _ADVICE.get(code & 0xFF)
        if advice is None:
            return None
        error_code, text = advice
        return MistifyError(error_code, f"the server's store ({self._path.parent.name}) {text}")

    @override
    def prepare_migration(self, connection: Connection, version: int) -> str:
        copy = self._path.with_name(f"{self._path.name}.v{version}")
        # Another connection does not see the open transaction of the migration.
        with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as source:
            write_bytes(copy, source.serialize(), durable=True, private=True)
        return f"{copy} has the old one"

    @override
    def check_links(self, connection: Connection) -> None:
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise ValueError(f"rows refer to rows that are not there: {broken[:3]}")

    @override
    def tidy(self) -> None:
        """Rewrite the file once if it cannot release the disk space of removed rows.

        This temporarily needs as much free space as the database uses; otherwise the database stays
        unchanged. The file itself records whether it can shrink, independent of its schema.
        """
        if not self._path.exists():
            return
        with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            if connection.execute("PRAGMA auto_vacuum").fetchone() != (0,):
                return
            try:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("VACUUM")
            except sqlite3.Error as error:
                _log.warning("%s does not shrink when jobs are removed: %s", self._path, error)

    @override
    def version(self, observer: sqlite3.Connection) -> int:
        ((version,),) = observer.execute("PRAGMA data_version").fetchall()
        return int(version)

    @override
    def size(self, session: Session) -> int:
        """Return the size of the file, including data not yet in it."""
        files = self._path, self._path.with_name(f"{self._path.name}-wal")
        return sum(path.stat().st_size for path in files if path.exists())

    @override
    def shrink(self, engine: Engine) -> int:
        with closing(engine.raw_connection()) as raw:
            cursor = raw.cursor()

            def value(pragma: str) -> int:
                return int(cursor.execute(f"PRAGMA {pragma}").fetchone()[0])

            before = value("page_count")
            # `execute` would stop after the first page.
            cursor.executescript(f"PRAGMA incremental_vacuum({_RELEASED_PAGES})")
            released = before - value("page_count")
            if not released:
                value("wal_checkpoint(TRUNCATE)")
            return released * value("page_size")

    @override
    def faults(self, session: Session) -> list[str]:
        """Return what SQLite finds wrong with the file, and rows that refer to missing ones."""
        connection = session.connection()
        complaints = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check")]
        orphans = connection.exec_driver_sql("PRAGMA foreign_key_check")
        links = [
            f"row {row} of {table} refers to a missing row of {other}" for table, row, other, _ in orphans
        ]
        return [fault for fault in complaints if fault != "ok"] + links

    @override
    @contextmanager
    def snapshot(self, target: Path) -> Iterator["SqliteBackend"]:
        """Copy the file, and put the copy into a directory at the end of the block."""
        copied = target / f"{DATABASE}.part"
        copied.unlink(missing_ok=True)
        with (
            self.translated(),
            closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as source,
            closing(sqlite3.connect(copied)) as copy,
        ):
            # All pages at once: SQLite begins again after each write, and readers do not hold up writers.
            source.backup(copy)
        yield SqliteBackend(copied)
        for suffix in _BESIDE:
            (target / f"{copied.name}{suffix}").unlink(missing_ok=True)
            (target / f"{DATABASE}{suffix}").unlink(missing_ok=True)
        copied.replace(target / DATABASE)
        sync_path(target)


def _begin_explicitly(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says


def _set_up(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
    _begin_explicitly(connection, entry)
    connection.create_function(
        "casefold", 1, str.casefold, deterministic=True
    )  # SQLite's lower() is for ASCII
    # Setting the mode waits for writers, and only affects new files. `SqliteBackend.tidy` rewrites files
    # created by older versions.
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    for pragma in ("foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
