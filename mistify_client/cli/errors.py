"""Errors of a command as the user sees them."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from mistify.errors import MistifyError
from mistify.uploads import as_written

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


@contextmanager
def reported_errors() -> Iterator[None]:
    """Report an error as one message, and exit with its code from the catalogue."""
    try:
        yield
    except MistifyError as error:
        typer.echo(f"mistify: {as_written(str(error))}", err=True)
        raise typer.Exit(error.code.exit_code) from error
    except OSError as error:
        typer.echo(f"mistify: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from error
