"""How a command reports errors to the user."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from mistify.errors import THE_CONFIG, MistifyError
from mistify.uploads import as_written
from mistify_client.porting.printing import print_line

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


@contextmanager
def errors_of(source: str) -> Iterator[None]:
    """Report a server's problems with a config like local ones, with the name of its file."""
    try:
        yield
    except MistifyError as error:
        if not (error.problems and error.message.startswith(THE_CONFIG)):
            raise
        message = f"{source}{error.message.removeprefix(THE_CONFIG)}"
        raise MistifyError(error.code, message, error.problems) from error


@contextmanager
def reported_errors() -> Iterator[None]:
    """Report an error as one message, and exit with its code from the catalogue."""
    try:
        yield
    except MistifyError as error:
        print_line(Console(stderr=True), f"mistify: {as_written(str(error))}")
        raise typer.Exit(error.code.exit_code) from error
    except OSError as error:
        print_line(Console(stderr=True), f"mistify: {error}")
        raise typer.Exit(EXIT_FAILED) from error
