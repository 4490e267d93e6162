"""What commands of `mistify-server` on a store have in common."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mistify.errors import ErrorCode, MistifyError
from mistify_server.identity.audit import AuditLog
from mistify_server.identity.callers import LOCAL
from mistify_server.store.directory import AUDIT, Store, has_database, open_store
from mistify_server.store.lock import LOGS

StoreOption = Annotated[Path, typer.Option(help="Directory with the server's jobs, models and packages.")]


def existing(store: Path) -> Path:
    """Return the path of a store.

    Raises:
        MistifyError: NOT_FOUND, there is no store.
    """
    if not has_database(store):
        raise MistifyError(
            ErrorCode.NOT_FOUND,
            f"--store: {store} is not a store, it has no database; give the --store of a server that has "
            "been started",
        )
    return store.resolve()


@contextmanager
def recorded(store: Path, command: str, subject: str) -> Iterator[None]:
    """Record the change that a command makes to a store in the audit log of its server."""
    outcome = ErrorCode.INTERNAL.name
    try:
        yield
        outcome = "OK"
    except MistifyError as error:
        outcome = error.code.name
        raise
    finally:
        with closing(AuditLog(store / LOGS / AUDIT)) as audit:
            audit.record(LOCAL, f"mistify-server {command}", subject, outcome)


@contextmanager
def changed(store: Path, command: str, subject: str) -> Iterator[Store]:
    """Open an existing store for a command that changes it, and record the change."""
    store = existing(store)
    with recorded(store, command, subject), open_store(store) as opened:
        yield opened


@contextmanager
def reported_errors() -> Iterator[None]:
    """Print errors to standard error, and exit with the code from the error catalogue."""
    try:
        yield
    except MistifyError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.code.exit_code) from error
