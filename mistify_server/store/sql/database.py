"""The database of a store and its transactions."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from mistify_server.store.sql.backend import Backend
from mistify_server.store.sql.migrations.migrate import VERSION_KEY, has_metadata, version_rows
from mistify_server.store.sql.schema import MetaRow, Table

#: Pause between two parts of the disk space that is released: other writers that wait begin.
_PAUSE_SECONDS: Final = 0.001


class Database:
    """Transactions on a database, with one writer at a time.

    Attributes:
        user: A random id, with which the changes of this object are announced to others.
    """

    def __init__(self, backend: Backend, engine: Engine) -> None:
        self._backend = backend
        self._engine = engine
        self._readers = engine.execution_options(**backend.read_options)
        self._statements = engine.execution_options(**backend.statement_options)
        self._writers = engine.execution_options(**backend.write_options)
        self._writing = threading.Lock()
        self._observing = threading.Lock()
        self.user = uuid4().hex

    @classmethod
    def open(cls, backend: Backend, busy_seconds: float) -> "Database":
        """Open a database with the current schema, or create its tables.

        Args:
            busy_seconds: Seconds that a call waits for other processes before it fails with UNAVAILABLE.

        Raises:
            MistifyError: STORE_VERSION, it is not a store; CONFLICT, it belongs to another store;
                UNAVAILABLE, it cannot be read or written.
        """
        database = cls(backend, backend.engine(busy_seconds))
        try:
            with database.write() as session:
                connection = session.connection()
                new = not has_metadata(connection) or session.get(MetaRow, VERSION_KEY) is None
                if new:
                    backend.check_new(connection)
                    Table.metadata.create_all(connection)
                    session.add_all(MetaRow(key=key, value=value) for key, value in version_rows())
                backend.opened(session, new=new)
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a read-only session with a consistent snapshot of the store."""
        with self._backend.translated(), Session(self._readers) as session:
            yield session
            # With each rollback, the client of PostgreSQL would forget the statements that it has prepared.
            session.expunge_all()
            session.commit()

    @contextmanager
    def read_rows(self) -> Iterator[Connection]:
        """Yield a connection for one statement that reads.

        It takes a third of the time of `read`, without objects of rows.
        """
        with self._backend.translated(), self._statements.connect() as connection:
            yield connection

    def version(self) -> int | None:
        """Return a number that changes with each commit, of any process; None if a read would be as fast."""
        with self._backend.translated(), self._observing:
            return None if self._backend.remote else self._backend.version(self._observer.driver_connection)

    @cached_property
    def _observer(self) -> PoolProxiedConnection:
        """Return a connection that only asks for the version, which does not count its own commits."""
        return self._engine.raw_connection()

    @contextmanager
    def write(self, *, certain: bool = False) -> Iterator[Session]:
        """Yield a session that is committed at the end of the block, or rolled back on an error.

        Args:
            certain: If the connection to another machine is lost in the commit, wait up to a minute to learn
                its outcome, so that a caller who repeats a failed block does not do its work twice. Not for
                event loops.
        """
        transaction: str | None = None
        with self._backend.translated():
            try:
                with self._writing, Session(self._writers) as session:
                    yield session
                    session.flush()
                    transaction = self._backend.transaction_of(session) if certain else None
                    session.commit()
            except DBAPIError as error:
                lost = error.connection_invalidated
                if transaction is None or not lost or not self._backend.committed(transaction):
                    raise

    def announce(self, session: Session, job_id: str = "") -> None:
        """Tell other processes, once a session is committed, that a job has changed; empty for any job."""
        self._backend.announce(session, f"{self.user} {job_id}")

    @contextmanager
    def announced(self, on_change: Callable[[str], None]) -> Iterator[None]:
        """Call a function within the block with the id of each job that other processes have changed.

        The id is empty if any job may have changed, for example after a lost connection. The function is
        called by another thread.
        """

        def on_announcement(text: str) -> None:
            user, _, job_id = text.partition(" ")
            if user != self.user:
                on_change(job_id)

        with self._backend.announcements(on_announcement):
            yield

    def size(self) -> int:
        """Return the size of the database in bytes."""
        with self.read() as session:
            return self._backend.size(session)

    def shrink(self) -> int:
        """Release the disk space of removed rows, part by part; return the number of bytes freed."""
        freed = 0
        while True:
            with self._writing, self._backend.translated():
                part = self._backend.shrink(self._engine)
            if not part:
                return freed
            freed += part
            time.sleep(_PAUSE_SECONDS)

    def faults(self) -> list[str]:
        """Return what is wrong with the content of the database."""
        with self.read() as session:
            return self._backend.faults(session)

    def close(self) -> None:
        """Close every connection."""
        if "_observer" in self.__dict__:
            self._observer.close()
        self._engine.dispose()
