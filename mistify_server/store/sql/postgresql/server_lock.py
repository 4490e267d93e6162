"""The locks of the servers that use a PostgreSQL database."""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, RLock, Thread, Timer
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.sql.backend import Role
from mistify_server.store.sql.postgresql.failures import failure_of
from mistify_server.store.sql.schema import MetaRow

#: Interval between checks of the connection with the lock, in seconds: usually, and during an outage.
_CHECK_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0

#: How long the database may take to answer a check, in seconds, before it is taken for one that hangs.
_ANSWER_SECONDS: Final = 5.0

#: By how many seconds the clock of a server may differ from that of the database.
_CLOCK_SECONDS: Final = 5.0

#: How long a server waits for a lock, in milliseconds: that of a killed one ends with its connection, and
#: a main server that starts soon lets others join.
_PATIENCE_MS: Final = 2_000
_JOINING_MS: Final = 30_000

#: The SQLSTATE of a lock that another connection has.
_LOCK_NOT_AVAILABLE: Final = "55P03"

#: Key of the row in the table `meta` that names the last main server.
SERVER_KEY: Final = "server"

_log = logging.getLogger(__name__)


class ServerLock:
    """Locks on a connection of their own, which a thread watches and makes again after an outage.

    One server is the main one, and has a lock alone. Those that join it share another lock, which the main
    one shares as well, or has alone while it is being started or no servers may be there.

    Locks belong to a process of PostgreSQL. A connection has one of its own, unless a pooler between them
    gives it another one for each transaction. Such a pooler is refused.

    Locks end with their connection, of which the server learns later. So the main server also records itself
    in the database, and every write of it checks that it is still the recorded one. While the database cannot
    be reached, calls fail at once instead of waiting for a connection. If it hangs, it keeps its connections,
    but does not answer; then they are ended, as if it had been stopped.

    Args:
        engine: Makes connections without transactions.
        name: The database in messages to the operator.
        key: The key of the main server's advisory lock; that of all servers has the next one.
        end_connections: Ends all connections of the server; called by another thread.

    Attributes:
        alone: Whether no server can join.
    """

    def __init__(
        self, engine: Engine, name: str, key: int, role: Role, end_connections: Callable[[], None]
    ) -> None:
        self.alone = False
        self._engine = engine
        self._name = name
        self._key, self._joined_key = key, key + 1
        self._role = role
        self._using = RLock()
        self._end_connections = end_connections
        self._server = f"process {os.getpid()} on {socket.gethostname()} {uuid4().hex}"
        self._connection: Connection | None = None
        self._process = (0, "")
        self._recorded = False
        self._confirmed = False
        self._reachable = True
        self._look = Event()
        self._ended = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock within the block.

        Raises:
            MistifyError: UNAVAILABLE, another server has it; INVALID_CONFIG, a pooler cannot keep it.
        """
        self._acquire()
        thread = Thread(target=self._watch, name="database-lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended = True
            self._look.set()
            thread.join()
            self._disconnect()

    def admit(self) -> None:
        """Let other servers join, if this one was alone."""
        with self._using:
            if self.alone and self._connection is not None:
                self._connection.exec_driver_sql(f"SELECT pg_advisory_lock_shared({self._joined_key})")
                self._connection.exec_driver_sql(f"SELECT pg_advisory_unlock({self._joined_key})")
            self.alone = False

    def record(self, session: Session) -> None:
        """Record this server in the database, if it is the main one."""
        if self._role is Role.JOINED:
            return
        session.merge(MetaRow(key=SERVER_KEY, value=self._server))
        self._recorded = True

    @property
    def reachable(self) -> bool:
        """Return whether the database can be reached: no connection was lost since the last one was made."""
        return self._reachable

    def check_reachable(self) -> None:
        """Check without waiting that no connection was lost since the last one was made.

        Raises:
            MistifyError: UNAVAILABLE.
        """
        if not self._reachable:
            raise MistifyError(
                ErrorCode.UNAVAILABLE, "the server's database is not available; try again later"
            )

    def check_owner(self, connection: Connection) -> None:
        """Check in a transaction that no other server has taken over the database.

        Raises:
            MistifyError: UNAVAILABLE, another server has.
        """
        if not self._recorded:
            return
        if self._last_server(connection) != self._server:
            raise MistifyError(
                ErrorCode.UNAVAILABLE, "another server has taken over the server's database; stop this one"
            )
        self._confirmed = True

    def report_lost(self, detail: str) -> None:
        """Note that a connection was lost or cannot be made; the thread finds out when one can be."""
        self._note_outage(detail)
        self._look.set()

    def _note_outage(self, reason: object) -> None:
        if self._reachable:
            self._reachable = False
            _log.warning("%s cannot be used: %s", self._name, reason)

    def _watch(self) -> None:
        """Check the connection until the end of the block, more often during an outage."""
        while not self._ended:
            self._look.wait(_CHECK_SECONDS if self._reachable else _RETRY_SECONDS)
            self._look.clear()
            if not self._ended:
                self._check()

    def _check(self) -> None:
        with self._using:
            self._check_connection()

    def _check_connection(self) -> None:
        try:
            if not self._alive():
                self._acquire()
            if self._connection is not None and self._confirmed:  # before, the record may not be committed
                with self._answering():
                    self.check_owner(self._connection)
        except (SQLAlchemyError, MistifyError) as error:
            if isinstance(error, SQLAlchemyError):  # a connection that was lost in a check stays unusable
                self._disconnect()
            failure = failure_of(error)
            self._note_outage(error if failure is None else failure.detail)
        except Exception:  # or else nobody would check the lock any more
            _log.exception("the lock of %s cannot be checked because of an internal error", self._name)
            self._disconnect()
            self._note_outage("its lock cannot be checked")
        else:
            if not self._reachable:
                self._reachable = True
                _log.info("%s can be used again", self._name)

    def _alive(self) -> bool:
        """Check whether the connection with the lock is still there."""
        try:
            if self._connection is not None:
                with self._answering():
                    process = _process_of(self._connection)
                if process != self._process[0]:  # a pooler has given it to another client meanwhile
                    self._disconnect()
        except DBAPIError:
            self._disconnect()
        return self._connection is not None

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """End all connections if the block, which waits for an answer, takes too long."""
        timer = Timer(_ANSWER_SECONDS, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._note_outage(f"it has not answered for {_ANSWER_SECONDS:g} seconds")
        self._end_connections()

    def _acquire(self) -> None:
        """Take the locks on a new connection.

        Raises:
            MistifyError: UNAVAILABLE, another server has one; INVALID_CONFIG, a pooler cannot keep them.
        """
        connection = self._engine.connect()
        try:
            self._check_pooler(connection)
            if self._role is not Role.JOINED:
                self._lock(connection, f"pg_advisory_lock({self._key})", _PATIENCE_MS)
            if self._role is Role.ALONE:
                self._lock(connection, f"pg_advisory_lock({self._joined_key})", _PATIENCE_MS)
                self.alone = True
            elif self._role is Role.MAIN and not self._recorded:
                tried = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({self._joined_key})")
                self.alone = bool(tried.scalar())
            if not self.alone:
                self._lock(connection, f"pg_advisory_lock_shared({self._joined_key})", _JOINING_MS)
            started = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            pid, start = connection.exec_driver_sql(started).one()
            self._compare_clocks(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, (pid, start)

    def _check_pooler(self, connection: Connection) -> None:
        """Check that a connection keeps its process of PostgreSQL, and shares it with no other one.

        A pooler that lends processes to transactions takes either the one that was used last or the one that
        has not been used for longest. So either two connections get the same one, or one gets two.

        Raises:
            MistifyError: INVALID_CONFIG.
        """
        first, second = _process_of(connection), _process_of(connection)
        with self._engine.connect() as other:
            if first == second != _process_of(other):
                return
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"{self._name} is behind a pooler that lends connections to single transactions, which "
            "lose locks and notifications; set it to session mode (PgBouncer: pool_mode = session), or use "
            "PostgreSQL's own address",
        )

    def _compare_clocks(self, connection: Connection) -> None:
        """Warn of a clock that differs from that of the database, and thus from those of other servers."""
        now = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one()
        ahead = time.time() - float(now)
        if abs(ahead) > _CLOCK_SECONDS:
            _log.warning(
                "the clock of this machine is %.0f seconds %s that of %s; set both by NTP: the age of "
                "reports, tokens and files depends on them",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
                self._name,
            )

    def _lock(self, connection: Connection, lock: str, patience_ms: int) -> None:
        try:
            connection.exec_driver_sql(f"SET lock_timeout = {patience_ms}")
            connection.exec_driver_sql(f"SELECT {lock}")
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            raise self._taken(connection) from error

    def _taken(self, connection: Connection) -> MistifyError:
        """Return the error for a lock that another connection has, and end it if it is this server's own.

        PostgreSQL may keep a connection that was cut for as long as it does not try to send anything.
        """
        exists = connection.exec_driver_sql("SELECT to_regclass('meta')").scalar() is not None
        holder = self._last_server(connection) if exists else None
        if self._recorded and holder == self._server:
            pid, start = self._process
            connection.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {pid} "  # noqa: S608 (our own)
                f"AND backend_start::text = '{start}'"
            )
        named = "" if holder is None else f" (the main one is {' '.join(holder.split()[:4])})"
        return MistifyError(
            ErrorCode.UNAVAILABLE,
            f"{self._name} is in use by another server{named}; stop that server, join it (--join), or "
            "use another database",
        )

    def _last_server(self, connection: Connection) -> str | None:
        value = connection.exec_driver_sql(f"SELECT value FROM meta WHERE key = '{SERVER_KEY}'").scalar()  # noqa: S608 (our own)
        return None if value is None else str(value)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(DBAPIError):
                self._connection.close()
        self._connection = None


def _process_of(connection: Connection) -> int:
    """Return the id of the process of PostgreSQL that serves a connection."""
    return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
