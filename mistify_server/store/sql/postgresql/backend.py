"""A PostgreSQL database of a store, whose files are in the store's directory."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, Engine, create_engine, event, func, inspect, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.sql.backend import BUSY_SECONDS, CONNECTIONS, Backend, Role
from mistify_server.store.sql.migrations.steps import OLDEST_PORTABLE
from mistify_server.store.sql.postgresql.address import DatabaseAddress
from mistify_server.store.sql.postgresql.binding import bind, check_bound, copy_binding
from mistify_server.store.sql.postgresql.failures import failure_of
from mistify_server.store.sql.postgresql.listener import CHANNEL, Listener
from mistify_server.store.sql.postgresql.server_lock import ServerLock
from mistify_server.store.sql.postgresql.sockets import Sockets
from mistify_server.store.sql.schema import Table

#: Keys of advisory locks: the only writer's, and the main server's; `ServerLock` has one more after it.
_WRITER_KEY: Final = int.from_bytes(b"mistify")
_SERVER_KEY: Final = _WRITER_KEY + 1

#: Settings of libpq unless the address has others: a lost machine is noticed within half a minute.
_CONNECTION: Final = {
    "application_name": "mistify-server",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}

#: The same for the other side, so that the locks of a lost machine are released.
_SESSION: Final = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 20000"
)

#: How long a writer whose connection was lost in the commit waits for the database, to learn the outcome.
_OUTCOME_SECONDS: Final = 60.0
_OUTCOME_INTERVAL: Final = 0.25

#: How long a writer may do nothing in a transaction, in milliseconds: others wait for one that was stopped.
_IDLE_MS: Final = 10_000

#: The status of a transaction whose outcome is not known yet.
_IN_PROGRESS: Final = "in progress"

#: Key of a connection's last transaction in its `info`.
_TRANSACTION: Final = "transaction"


class PostgresBackend(Backend):
    """A PostgreSQL database.

    Transactions that write hold one advisory lock, like the lock of a SQLite file.

    Args:
        directory: The store, whose files belong to the rows of the database.
    """

    remote = True
    oldest = OLDEST_PORTABLE
    read_options: ClassVar[dict[str, Any]] = {
        "isolation_level": "REPEATABLE READ",
        "postgresql_readonly": True,
    }
    #: PostgreSQL need not be asked to begin and end a transaction of one statement.
    statement_options: ClassVar[dict[str, Any]] = {"isolation_level": "AUTOCOMMIT"}
    #: Each statement sees what others have committed before the lock was taken, unlike at other levels.
    write_options: ClassVar[dict[str, Any]] = {"isolation_level": "READ COMMITTED", "writes": True}

    def __init__(self, address: DatabaseAddress, directory: Path) -> None:
        self._address = address
        self._directory = directory
        self._lock: ServerLock | None = None
        self._sockets = Sockets()

    @property
    @override
    def name(self) -> str:
        return f"the database {self._address}"

    @override
    def exists(self) -> bool:
        return True

    @override
    def engine(self, busy_seconds: float) -> Engine:
        size, overflow = CONNECTIONS
        engine = self._engine(busy_seconds, pool_size=size, max_overflow=overflow, pool_pre_ping=True)
        event.listen(engine, "do_connect", self._check_before_connecting)
        return engine

    @override
    def migration_engine(self) -> Engine:
        return self._engine(BUSY_SECONDS, poolclass=NullPool)

    @override
    def failure(self, error: BaseException) -> MistifyError | None:
        failure = failure_of(error)
        if failure is None:
            return None
        if self._lock is None:
            detail = f" ({failure.detail})" if failure.detail else ""
            return MistifyError(failure.code, f"{self.name} {failure.text}{detail}")
        # Messages for callers contain no addresses and users; its log has them.
        if failure.lost:
            self._lock.report_lost(failure.detail)
            return MistifyError(failure.code, "the server's database is not available; try again later")
        return MistifyError(failure.code, f"the server's database {failure.text}")

    @override
    @contextmanager
    def locked(self, role: Role) -> Iterator[None]:
        engine = self._engine(BUSY_SECONDS, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        lock = ServerLock(engine, self.name, _SERVER_KEY, role, self._sockets.shut_down)
        with ExitStack() as holding:
            with self.translated():
                holding.enter_context(lock.held())
            self._lock = lock
            try:
                yield
            finally:
                self._lock = None

    @property
    @override
    def alone(self) -> bool:
        return self._lock is not None and self._lock.alone

    @override
    def admit(self) -> None:
        if self._lock is not None:
            with self.translated():
                self._lock.admit()

    @property
    @override
    def reachable(self) -> bool:
        return self._lock is None or self._lock.reachable

    @override
    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise failures as described in `Backend`, and at once while a server cannot reach the database."""
        if self._lock is not None:
            self._lock.check_reachable()
        with super().translated():
            yield

    @override
    def check_new(self, connection: Connection) -> None:
        """Check that the database can hold any text, and has no tables of another application.

        Raises:
            MistifyError: CONFLICT.
        """
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            raise MistifyError(
                ErrorCode.CONFLICT,
                f"{self.name} has the encoding {encoding}; create one with UTF8: createdb --encoding UTF8 "
                "--template template0 NAME",
            )
        others = sorted(set(inspect(connection).get_table_names()) & Table.metadata.tables.keys())
        if others:
            raise MistifyError(
                ErrorCode.CONFLICT,
                f"{self.name} has a table {others[0]} of another application; use a database of its own",
            )

    @override
    def opened(self, session: Session, *, new: bool) -> None:
        bind(session, self._directory, self._address, new=new)
        if self._lock is not None:
            self._lock.record(session)

    @override
    def transaction_of(self, session: Session) -> str | None:
        return str(session.connection().info[_TRANSACTION])

    @override
    def committed(self, transaction: str) -> bool:
        question = f"SELECT pg_xact_status('{transaction}'::xid8)"
        deadline = time.monotonic() + _OUTCOME_SECONDS
        while True:
            try:
                with self.migration_engine().connect() as connection:
                    status = connection.exec_driver_sql(question).scalar()
            except DBAPIError:
                status = _IN_PROGRESS
            if status != _IN_PROGRESS or time.monotonic() > deadline:
                return status == "committed"
            time.sleep(_OUTCOME_INTERVAL)

    @override
    def prepare_migration(self, connection: Connection, version: int) -> str:
        check_bound(connection, self._directory, self._address)
        return "there is no copy of the old one"

    @override
    def check_links(self, connection: Connection) -> None:
        """Do nothing: PostgreSQL checks every statement."""

    @override
    def tidy(self) -> None:
        """Do nothing: every database has the current form."""

    @override
    def size(self, session: Session) -> int:
        size = session.connection().exec_driver_sql("SELECT pg_database_size(current_database())").scalar()
        return int(size or 0)

    @override
    def shrink(self, engine: Engine) -> int:
        """Do nothing: PostgreSQL uses the space of removed rows for new ones."""
        return 0

    @override
    def faults(self, session: Session) -> list[str]:
        """Return the tables that cannot be read; PostgreSQL itself keeps the links between rows intact."""
        return [fault for table in Table.metadata.tables for fault in _faults_of(session, table)]

    @override
    @contextmanager
    def snapshot(self, target: Path) -> Iterator["PostgresBackend"]:
        """Yield the database itself, which only PostgreSQL's own programs copy."""
        yield self
        copy_binding(self._directory, target)

    @override
    def announce(self, session: Session, text: str) -> None:
        session.execute(select(func.pg_notify(CHANNEL, text)))

    @override
    def announcements(self, on_text: Callable[[str], None]) -> AbstractContextManager[None]:
        return Listener(self.migration_engine(), on_text).listening()

    @override
    def dump_command(self) -> str:
        return f"pg_dump --format=custom --file=jobs.dump {shlex.quote(str(self._address))}"

    def _engine(self, busy_seconds: float, **options: Any) -> Engine:
        url = self._address.url.set(drivername="postgresql+psycopg")
        missing = {name: value for name, value in _CONNECTION.items() if name not in url.query}
        try:
            engine = create_engine(
                url.update_query_dict(missing), hide_parameters=True, use_native_hstore=False, **options
            )
        except ImportError as error:
            raise MistifyError(
                ErrorCode.INVALID_CONFIG,
                "a database in PostgreSQL needs its client: run pip install 'mistify-porting[postgresql]', "
                "or omit --database for SQLite",
            ) from error
        self._sockets.collect(engine)
        event.listen(engine, "connect", _set_up(busy_seconds))
        event.listen(engine, "begin", self._begin)
        return engine

    def _check_before_connecting(self, *_: object) -> None:
        """Let calls that have waited for one another fail at once, and not one after the other."""
        if self._lock is not None:
            self._lock.check_reachable()

    def _begin(self, connection: Connection) -> None:
        """Wait for other writers, and remember the transaction."""
        if not connection.get_execution_options().get("writes"):
            return
        begun = (
            f"SELECT pg_advisory_xact_lock({_WRITER_KEY}), pg_current_xact_id()::text, "
            f"set_config('idle_in_transaction_session_timeout', '{_IDLE_MS}', true)"
        )
        connection.info[_TRANSACTION] = connection.exec_driver_sql(begun).one()[1]
        if self._lock is not None:
            self._lock.check_owner(connection)


def _set_up(busy_seconds: float) -> Callable[[Any, ConnectionPoolEntry], None]:
    """Return what sets up a connection of psycopg."""
    from psycopg.types.string import StrDumper  # noqa: PLC0415 (optional)

    class WithoutNul(StrDumper):
        """Stores a replacement character for the only one that PostgreSQL cannot store."""

        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\N{REPLACEMENT CHARACTER}"))

    def set_up(connection: Any, _entry: ConnectionPoolEntry) -> None:
        connection.adapters.register_dumper(str, WithoutNul)
        before, connection.autocommit = connection.autocommit, True
        connection.execute(f"SET lock_timeout = {int(1000 * busy_seconds)}; {_SESSION}")
        connection.autocommit = before

    return set_up


def _faults_of(session: Session, table: str) -> Iterator[str]:
    """Yield why a table cannot be read completely."""
    connection = session.connection()
    statement = f"SELECT * FROM {table}"  # noqa: S608 (our own)
    try:
        with connection.begin_nested():
            for _ in connection.exec_driver_sql(statement, execution_options={"stream_results": True}):
                pass
    except DBAPIError as error:
        failure = failure_of(error)
        if failure is None or failure.lost:
            raise
        yield f"the table {table} {failure.text} ({failure.detail})"
