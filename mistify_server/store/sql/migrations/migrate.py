"""Migration of a database written by an older Mistify."""

import logging
import sqlite3
from contextlib import closing
from importlib.metadata import version as installed
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import write_bytes
from mistify_server.store.sql.failures import disk_failure, translated
from mistify_server.store.sql.migrations.steps import OLDEST, STEPS

#: Version of the tables in `mistify_server.store.sql.schema`.
SCHEMA_VERSION = OLDEST + len(STEPS)

#: Key of the schema version in the table `meta`.
VERSION_KEY = "schema_version"
_WRITER_KEY = "mistify_version"

#: How long a writer waits for another writer.
BUSY_SECONDS = 30

_DISTRIBUTION = "mistify-porting"

_log = logging.getLogger(__name__)


def version_rows() -> list[tuple[str, str]]:
    """Return this Mistify's rows of the table `meta`: the schema version and its own version."""
    return [(VERSION_KEY, str(SCHEMA_VERSION)), (_WRITER_KEY, installed(_DISTRIBUTION))]


def is_outdated(path: Path) -> bool:
    """Check whether a database needs migration; False if it does not exist.

    Raises:
        MistifyError: STORE_VERSION, a newer or a much older Mistify wrote it; UNAVAILABLE, it cannot be read.
    """
    if not path.exists():
        return False
    with translated(path.parent), closing(_connect(path)) as connection:
        meta = _meta(connection)
    version = meta.get(VERSION_KEY, str(SCHEMA_VERSION))
    if not version.isdecimal() or not OLDEST <= int(version) <= SCHEMA_VERSION:
        raise _unknown(version, meta.get(_WRITER_KEY), path.parent)
    return int(version) < SCHEMA_VERSION


def migrate(path: Path) -> None:
    """Migrate a database to the current schema by all missing steps, or leave it unchanged.

    Before the first step, a copy is saved next to it, named after the old version. A database that is up to
    date or does not exist is not touched.

    Args:
        path: A database without other writers.

    Raises:
        MistifyError: STORE_VERSION, as in `is_outdated`, or a step failed; UNAVAILABLE, it cannot be written.
    """
    if not is_outdated(path):
        return
    try:
        with closing(_connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            old = int(_meta(connection)[VERSION_KEY])
            copy = _keep_copy(path, old)
            for step in STEPS[old - OLDEST :]:
                step(connection)
            _check_foreign_keys(connection)
            connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", version_rows())
            connection.execute("COMMIT")
    except Exception as error:
        raise disk_failure(error, path.parent) or _failed(error, path.parent) from error
    _log.info(
        "migrated the store %s from schema %d to %d; %s has the old one",
        path.parent,
        old,
        SCHEMA_VERSION,
        copy,
    )


def make_shrinkable(path: Path) -> None:
    """Rewrite a database once if it cannot release the disk space of removed rows.

    This temporarily needs as much free space as the database uses; otherwise the database stays unchanged.
    The file itself records whether it can shrink, independent of its schema.

    Args:
        path: A database without other users; no effect if it does not exist.
    """
    if not path.exists():
        return
    with closing(_connect(path)) as connection:
        if connection.execute("PRAGMA auto_vacuum").fetchone() != (0,):
            return
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
        except sqlite3.Error as error:
            _log.warning("%s does not shrink when jobs are removed: %s", path, error)


def _connect(path: Path) -> sqlite3.Connection:
    """Open a database; the caller begins and ends transactions."""
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


def _meta(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the metadata of the store; empty for an empty database."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return {}
    return dict(connection.execute("SELECT key, value FROM meta"))


def _keep_copy(path: Path, version: int) -> Path:
    """Copy a database without its open transaction, and return the path of the copy."""
    copy = path.with_name(f"{path.name}.v{version}")
    with closing(_connect(path)) as source:
        write_bytes(copy, source.serialize(), durable=True, private=True)
    return copy


def _check_foreign_keys(connection: sqlite3.Connection) -> None:
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise ValueError(f"rows refer to rows that are not there: {broken[:3]}")


def _unknown(version: str, writer: str | None, store: Path) -> MistifyError:
    own = f"its schema is {version}, Mistify {installed(_DISTRIBUTION)} reads {OLDEST} to {SCHEMA_VERSION}"
    if version.isdecimal() and int(version) < OLDEST:
        text = f"the store {store} is too old ({own}); run the Mistify that wrote it, or use another --store"
    else:
        newer = f"Mistify {writer}" if writer else "a newer Mistify"
        text = f"the store {store} was written by {newer} ({own}); run {newer}, or use another --store"
    return MistifyError(ErrorCode.STORE_VERSION, text)


def _failed(error: Exception, store: Path) -> MistifyError:
    return MistifyError(
        ErrorCode.STORE_VERSION,
        f"the store {store} cannot be migrated to schema {SCHEMA_VERSION} and is as it was "
        f"({type(error).__name__}: {error}); run the Mistify that wrote it, and report this",
    )
