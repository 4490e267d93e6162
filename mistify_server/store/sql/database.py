"""The database of a store and its transactions."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mistify_server.store.sql.backend import Backend
from mistify_server.store.sql.migrations.migrate import VERSION_KEY, version_rows
from mistify_server.store.sql.schema import MetaRow, Table


class Database:
    """Transactions on a database, with one writer at a time."""

    def __init__(self, backend: Backend, engine: Engine) -> None:
        self._backend = backend
        self._engine = engine
        self._readers = engine.execution_options(**backend.read_options)
        self._writers = engine.execution_options(**backend.write_options)
        self._writing = threading.Lock()

    @classmethod
    def open(cls, backend: Backend, busy_seconds: float) -> "Database":
        """Open a database with the current schema, or create its tables.

        Args:
            busy_seconds: Seconds that a call waits for other processes before it fails with UNAVAILABLE.

        Raises:
            MistifyError: STORE_VERSION, the file is not a store; UNAVAILABLE, it cannot be read or written.
        """
        database = cls(backend, backend.engine(busy_seconds))
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
        with self._backend.translated(), Session(self._readers) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Yield a session that is committed at the end of the block, or rolled back on an error."""
        with self._writing, self._backend.translated(), Session(self._writers) as session, session.begin():
            yield session

    def size(self) -> int:
        """Return the size of the database in bytes."""
        with self.read() as session:
            return self._backend.size(session)

    def shrink(self) -> int:
        """Release the disk space of removed rows, and return the number of bytes freed."""
        with self._writing, self._backend.translated():
            return self._backend.shrink(self._engine)

    def faults(self) -> list[str]:
        """Return what is wrong with the content of the database."""
        with self.read() as session:
            return self._backend.faults(session)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()
