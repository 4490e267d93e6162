"""Translation of a store's disk failures into advice for the operator."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DatabaseError

from mistify.errors import ErrorCode, MistifyError

_ADVICE = {
    sqlite3.SQLITE_FULL: (
        ErrorCode.UNAVAILABLE,
        "is on a full disk; free space",
    ),
    sqlite3.SQLITE_READONLY: (ErrorCode.UNAVAILABLE, "is read-only; give the server write access to it"),
    sqlite3.SQLITE_PERM: (ErrorCode.UNAVAILABLE, "cannot be accessed; give the server write access to it"),
    sqlite3.SQLITE_CANTOPEN: (ErrorCode.UNAVAILABLE, "cannot be opened; give the server write access to it"),
    sqlite3.SQLITE_IOERR: (
        ErrorCode.UNAVAILABLE,
        "cannot be read or written; check its disk",
    ),
    sqlite3.SQLITE_BUSY: (ErrorCode.UNAVAILABLE, "is busy with another process; try again later"),
    sqlite3.SQLITE_CORRUPT: (ErrorCode.STORE_VERSION, "is damaged; restore a backup or use another --store"),
    sqlite3.SQLITE_NOTADB: (
        ErrorCode.STORE_VERSION,
        "holds a mistify.db that is not a database; use another --store",
    ),
}


@contextmanager
def translated(store: Path) -> Iterator[None]:
    """Raise disk failures with advice for the operator, and program errors unchanged.

    Raises:
        MistifyError: UNAVAILABLE or STORE_VERSION, depending on the SQLite error.
    """
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError) as error:
        explained = disk_failure(error, store)
        if explained is None:
            raise
        raise explained from error


def disk_failure(error: BaseException, store: Path) -> MistifyError | None:
    """Return an error with advice for the operator about a disk failure; None for any other failure."""
    cause = error.orig if isinstance(error, DatabaseError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    advice = None if code is None else _ADVICE.get(code & 0xFF)
    if advice is None:
        return None
    error_code, text = advice
    return MistifyError(error_code, f"the server's store ({store.name}) {text}")
