"""Migration of a database written by an older Mistify."""

import logging
from importlib.metadata import version as installed

from sqlalchemy import Connection, inspect, text

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.sql.backend import Backend
from mistify_server.store.sql.migrations.steps import OLDEST, STEPS

#: Version of the tables in `mistify_server.store.sql.schema`.
SCHEMA_VERSION = OLDEST + len(STEPS)

#: Key of the schema version in the table `meta`.
VERSION_KEY = "schema_version"
_WRITER_KEY = "mistify_version"

_DISTRIBUTION = "mistify-porting"

_log = logging.getLogger(__name__)


def version_rows() -> list[tuple[str, str]]:
    """Return this Mistify's rows of the table `meta`: the schema version and its own version."""
    return [(VERSION_KEY, str(SCHEMA_VERSION)), (_WRITER_KEY, installed(_DISTRIBUTION))]


def is_outdated(backend: Backend) -> bool:
    """Check whether a database needs migration; False if it does not exist.

    Raises:
        MistifyError: STORE_VERSION, a newer or a much older Mistify wrote it, or it is damaged; UNAVAILABLE,
            it cannot be read.
    """
    if not backend.exists():
        return False
    with backend.translated(), backend.migration_engine().connect() as connection:
        meta = _meta(connection)
    version = meta.get(VERSION_KEY, str(SCHEMA_VERSION))
    if not version.isdecimal() or not backend.oldest <= int(version) <= SCHEMA_VERSION:
        raise _unknown(version, meta.get(_WRITER_KEY), backend)
    return int(version) < SCHEMA_VERSION


def migrate(backend: Backend) -> None:
    """Migrate a database to the current schema by all missing steps, or leave it unchanged.

    Before the first step, a copy is kept if this kind of database can be copied. A database that is up to
    date or does not exist is not touched.

    Args:
        backend: A database without other writers.

    Raises:
        MistifyError: STORE_VERSION, a newer or a much older Mistify wrote it, it is damaged, or a step
            failed; CONFLICT, it belongs to another store; UNAVAILABLE, it cannot be read or written.
    """
    if not is_outdated(backend):
        return
    engine = backend.migration_engine().execution_options(**backend.write_options)
    try:
        with engine.begin() as connection:
            old = int(_meta(connection)[VERSION_KEY])
            copy = backend.prepare_migration(connection, old)
            for step in STEPS[old - OLDEST :]:
                step(connection)
            backend.check_links(connection)
            for key, value in version_rows():
                connection.execute(text("DELETE FROM meta WHERE key = :key"), {"key": key})
                row = {"key": key, "value": value}
                connection.execute(text("INSERT INTO meta (key, value) VALUES (:key, :value)"), row)
    except MistifyError:
        raise
    except Exception as error:
        raise backend.failure(error) or _failed(error, backend) from error
    _log.info("migrated %s from schema %d to %d; %s", backend.name, old, SCHEMA_VERSION, copy)


def has_metadata(connection: Connection) -> bool:
    """Return whether a database has the table of a store's metadata, and not another one of this name."""
    tables = inspect(connection)
    if not tables.has_table("meta"):
        return False
    return {"key", "value"} <= {column["name"] for column in tables.get_columns("meta")}


def _meta(connection: Connection) -> dict[str, str]:
    """Return the metadata of the store; empty for a database that has none."""
    if not has_metadata(connection):
        return {}
    return {row.key: row.value for row in connection.execute(text("SELECT key, value FROM meta"))}


def _unknown(version: str, writer: str | None, backend: Backend) -> MistifyError:
    known = f"{backend.oldest} to {SCHEMA_VERSION}"
    own = f"its schema is {version}, Mistify {installed(_DISTRIBUTION)} reads {known}"
    if version.isdecimal() and int(version) < backend.oldest:
        message = f"{backend.name} is too old ({own}); run the Mistify that wrote it, or use another --store"
    else:
        newer = f"Mistify {writer}" if writer else "a newer Mistify"
        message = f"{backend.name} was written by {newer} ({own}); run {newer}, or use another --store"
    return MistifyError(ErrorCode.STORE_VERSION, message)


def _failed(error: Exception, backend: Backend) -> MistifyError:
    return MistifyError(
        ErrorCode.STORE_VERSION,
        f"{backend.name} cannot be migrated to schema {SCHEMA_VERSION} and is as it was "
        f"({type(error).__name__}: {error}); run the Mistify that wrote it, and report this",
    )
