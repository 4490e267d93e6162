"""Failures of PostgreSQL, with advice for the operator."""

from typing import Final, NamedTuple

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from mistify.errors import ErrorCode

#: Maximum number of characters of PostgreSQL's own message.
_MOST_DETAIL: Final = 300


class Failure(NamedTuple):
    """A failure of the database.

    Attributes:
        code: UNAVAILABLE if retrying may help, and otherwise STORE_VERSION.
        text: The fault and what to do about it, to follow the name of the database.
        detail: PostgreSQL's own message, which may name hosts and users.
        lost: Whether there is no connection.
    """

    code: ErrorCode
    text: str
    detail: str = ""
    lost: bool = False


#: Advice by the start of the SQLSTATE; the longest one counts.
_ADVICE: Final = {
    "40": "is busy; try again later",
    "55P03": "is busy with another process; try again later",
    "57014": "took too long; try again later, or raise the role's statement_timeout",
    "53": "has no resources left; give it more",
    "53100": "is on a full disk; free space",
    "58": "cannot read or write its files; check its disk",
    "25006": "is read-only; use the address of the primary server",
    "42501": "refuses this; make the server's role the owner of the database, or grant it all on its schema",
}

#: Classes of SQLSTATEs without a connection: connection exceptions, refused logins, unknown databases,
#: shutdowns, too many connections, and the end of a transaction in which nothing was done for long.
_LOST: Final = ("08", "25P03", "28", "3D000", "53300", "57P")

_DAMAGED: Final = ("XX001", "XX002")


def failure_of(error: BaseException) -> Failure | None:
    """Return what an error says about the database; None for an error of the program."""
    if isinstance(error, PoolTimeoutError):
        return Failure(ErrorCode.UNAVAILABLE, "is busy, all connections are in use; try again later")
    if not isinstance(error, DBAPIError):
        return None
    state = str(getattr(error.orig, "sqlstate", None) or "")
    detail = " ".join(str(error.orig).split())[:_MOST_DETAIL]
    unconnected = not state and isinstance(error, OperationalError)
    if error.connection_invalidated or unconnected or state.startswith(_LOST):
        return Failure(
            ErrorCode.UNAVAILABLE, f"cannot be used; {_connection_advice(detail)}", detail, lost=True
        )
    if state in _DAMAGED:
        return Failure(ErrorCode.STORE_VERSION, "is damaged; restore a backup", detail)
    advice = max((start for start in _ADVICE if state.startswith(start)), key=len, default=None)
    return None if advice is None else Failure(ErrorCode.UNAVAILABLE, _ADVICE[advice], detail)


def _connection_advice(detail: str) -> str:
    """Return what to do about a connection that cannot be made."""
    if "password" in detail:
        return "put the password into ~/.pgpass, into a file that PGPASSFILE names, or into PGPASSWORD"
    if "database" in detail and "does not exist" in detail:
        return "create the database (createdb NAME) or correct --database"
    if "role" in detail and "does not exist" in detail:
        return "create the role (createuser NAME) or correct --database"
    if "too many" in detail or "connection slots" in detail or "no more connections" in detail:
        return "raise max_connections, or the limit of the role, the database or the pooler"
    return "start PostgreSQL, or correct --database"
