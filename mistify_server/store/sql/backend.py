"""Interface of the kinds of databases that can hold a store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from mistify.errors import MistifyError

#: How long a writer waits for another writer by default, in seconds.
BUSY_SECONDS: Final = 30.0

#: Pooled and additional connections: more than the threads that use them.
CONNECTIONS: Final = (8, 40)


class Role(Enum):
    """The part of a process among those that use a database.

    Attributes:
        ALONE: A command that keeps all servers away, for example to migrate the database.
        MAIN: The only server that serves devices, and migrates the database when it starts first.
        JOINED: One of any number of servers that run jobs beside the main one.
    """

    ALONE = "alone"
    MAIN = "main"
    JOINED = "joined"


class Backend(ABC):
    """A database, with everything that differs between kinds of databases.

    Attributes:
        remote: Whether calls wait for another program, perhaps on another machine, so that an event loop had
            better not make them.
        oldest: The oldest schema version that can be migrated.
        read_options: Options of the engine for transactions that read one consistent snapshot.
        statement_options: The same for single statements.
        write_options: Options of the engine for transactions that write, of which one runs at a time, even
            if several processes use the database.
    """

    remote: ClassVar[bool]
    oldest: ClassVar[int]
    read_options: ClassVar[Mapping[str, Any]]
    statement_options: ClassVar[Mapping[str, Any]]
    write_options: ClassVar[Mapping[str, Any]]

    @property
    @abstractmethod
    def name(self) -> str:
        """Return what messages to the operator call the database."""

    @property
    def reachable(self) -> bool:
        """Return whether calls will probably succeed, without making one."""
        return True

    @abstractmethod
    def exists(self) -> bool:
        """Check whether there may be a database that an earlier version has written."""

    @abstractmethod
    def engine(self, busy_seconds: float) -> Engine:
        """Return an engine with a pool of connections.

        Args:
            busy_seconds: Seconds that a writer waits for other processes before it fails with UNAVAILABLE.
        """

    @abstractmethod
    def migration_engine(self) -> Engine:
        """Return an engine without a pool, which changes no settings of the database."""

    @abstractmethod
    def failure(self, error: BaseException) -> MistifyError | None:
        """Return an error with advice for the operator; None for an error of the program.

        The code is UNAVAILABLE if retrying may help, and otherwise STORE_VERSION.
        """

    @abstractmethod
    def prepare_migration(self, connection: Connection, version: int) -> str:
        """Copy the database if this kind of database can be copied, and say where the copy is.

        Args:
            connection: The connection that will migrate it.
            version: The version of its schema before the migration.

        Raises:
            MistifyError: CONFLICT, the database belongs to another store.
        """

    def locked(self, role: Role) -> AbstractContextManager[None]:
        """Keep others from using the database in the same role, or at all in the role `ALONE`, in the block.

        Nothing has to be done for a database in the directory of its store, which has a lock of its own.

        Raises:
            MistifyError: UNAVAILABLE, another server uses the database, or it cannot be reached;
                INVALID_CONFIG, servers cannot join others.
        """
        return nullcontext()

    @property
    def alone(self) -> bool:
        """Return whether this server keeps all others from the database; `admit` lets them join."""
        return True

    def admit(self) -> None:  # noqa: B027 (SQLite has one server)
        """Let other servers join."""

    def check_new(self, connection: Connection) -> None:  # noqa: B027 (SQLite needs none)
        """Check that tables can be created in a database without any.

        Raises:
            MistifyError: CONFLICT, the database is not suitable.
        """

    def opened(self, session: Session, *, new: bool) -> None:  # noqa: B027
        """Complete the first transaction on a database.

        Args:
            new: Whether its tables were created in this transaction.

        Raises:
            MistifyError: CONFLICT, the database belongs to another store.
        """

    def transaction_of(self, session: Session) -> str | None:
        """Return the id of a session's transaction for `committed`; None if a commit cannot be in doubt."""
        return None

    def committed(self, transaction: str) -> bool:
        """Wait up to a minute for a database that was lost in a commit; return whether it has committed."""
        return False

    def announce(self, session: Session, text: str) -> None:  # noqa: B027 (SQLite has one server)
        """Send a text to all processes in `announcements` when a session is committed."""

    def announcements(self, on_text: Callable[[str], None]) -> AbstractContextManager[None]:
        """Receive the texts of `announce` within the block, and an empty one whenever some may be missing.

        Args:
            on_text: Called by another thread.
        """
        return nullcontext()

    def dump_command(self) -> str | None:
        """Return the command that copies the database; None if `snapshot` does."""
        return None

    @abstractmethod
    def check_links(self, connection: Connection) -> None:
        """Raise ValueError if rows refer to missing ones after a migration."""

    @abstractmethod
    def tidy(self) -> None:
        """Bring an older database without users into the form of a new one, apart from its schema."""

    def version(self, observer: Any) -> int | None:
        """Return a number that changes with the commits of all other connections, in any process.

        None for a database whose answer would take as long as a read.

        Args:
            observer: A connection of the driver that is used for nothing else.
        """
        return None

    @abstractmethod
    def size(self, session: Session) -> int:
        """Return the size of the database in bytes."""

    @abstractmethod
    def shrink(self, engine: Engine) -> int:
        """Release a part of the disk space of removed rows within milliseconds.

        Returns:
            The number of bytes freed; 0 if there is nothing left to release.
        """

    @abstractmethod
    def faults(self, session: Session) -> list[str]:
        """Return what is wrong with the content of the database."""

    @abstractmethod
    def snapshot(self, target: Path) -> AbstractContextManager["Backend"]:
        """Yield the database in its current state for a backup into a directory.

        If this kind of database can be copied, it is in the directory after the block.
        """

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise failures of the database with advice for the operator, and program errors unchanged.

        Raises:
            MistifyError: UNAVAILABLE or STORE_VERSION, depending on the failure.
        """
        try:
            yield
        except Exception as error:
            explained = self.failure(error)
            if explained is None:
                raise
            raise explained from error
