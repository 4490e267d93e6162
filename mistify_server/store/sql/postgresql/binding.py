"""The link between a database and the directory with the files of the same store."""

import shutil
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.links import read_link, write_link
from mistify_server.store.objects.binding import opened_artifacts
from mistify_server.store.sql.postgresql.address import DatabaseAddress
from mistify_server.store.sql.store_id import recorded_store_id, store_id

#: Name of the file in the directory of a store.
BINDING: Final = "database.json"


class Binding(BaseModel):
    """The address of a store's database, and the id of the store."""

    address: str
    store_id: str


def binding_of(directory: Path) -> Binding | None:
    """Return the link of a directory to its database; None if it has none.

    Raises:
        MistifyError: STORE_VERSION, it cannot be read.
    """
    return read_link(directory / BINDING, Binding)


def bind(session: Session, directory: Path, address: DatabaseAddress, *, new: bool) -> None:
    """Record in a directory that a database belongs to it, unless it belongs to another one.

    Args:
        new: Whether the database had no tables before.

    Raises:
        MistifyError: CONFLICT, database and directory do not belong together.
    """
    before = binding_of(directory)
    if not new:
        check_bound(session.connection(), directory, address)
    elif before is not None and opened_artifacts(directory).names():
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"the database {address} is empty, but the store {directory} has files of jobs; restore the "
            "database from its dump (pg_restore), or use the address of the store's own database",
        )
    after = Binding(address=str(address), store_id=store_id(session))
    if after != before:
        write_link(directory / BINDING, after)


def check_bound(connection: Connection, directory: Path, address: DatabaseAddress) -> None:
    """Check that a database with tables belongs to a directory.

    Raises:
        MistifyError: CONFLICT, it belongs to another one.
    """
    binding = binding_of(directory)
    if binding is None or binding.store_id != recorded_store_id(connection):
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"the database {address} belongs to another directory than {directory}; use the --store whose "
            f"{BINDING} names it, or an empty database",
        )


def copy_binding(directory: Path, target: Path) -> None:
    """Copy the link for a backup, so that a restored database can be served with the copied files."""
    shutil.copy2(directory / BINDING, target / BINDING)
