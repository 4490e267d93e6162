"""The id of a store."""

from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from mistify_server.store.sql.schema import MetaRow

_KEY: Final = "store_id"


def store_id(session: Session) -> str:
    """Return the random id of a store, which is made at its first use."""
    row = session.get(MetaRow, _KEY)
    if row is None:
        row = MetaRow(key=_KEY, value=uuid4().hex)
        session.add(row)
    return row.value


def recorded_store_id(connection: Connection) -> str | None:
    """Return the id of a store with any schema; None if it has none."""
    value = connection.execute(text("SELECT value FROM meta WHERE key = :key"), {"key": _KEY}).scalar()
    return None if value is None else str(value)
