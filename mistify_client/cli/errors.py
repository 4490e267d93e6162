"""How a command reports errors to the user."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer
from rich.console import Console

from mistify.errors import NOTHING_STARTED, THE_CONFIG, MistifyError, with_outcome
from mistify.uploads import as_written
from mistify_client.porting.printing import print_line

#: Number of an operating system's error -> the way to fix it.
_ADVICE: Final = {
    errno.ENOSPC: "free some space, and repeat the command",
    errno.EDQUOT: "free some space, and repeat the command",
    errno.EROFS: "copy the package to a directory that can be written to",
}

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
def reported_errors(outcome: str = NOTHING_STARTED) -> Iterator[None]:
    """Report an error as one message, and exit with its code from the catalogue.

    Args:
        outcome: The consequence of an error in the input, such as "nothing was changed".
    """
    try:
        yield
    except MistifyError as error:
        print_line(Console(stderr=True), f"mistify: {as_written(str(with_outcome(error, outcome)))}")
        raise typer.Exit(error.code.exit_code) from error
    except OSError as error:
        print_line(Console(stderr=True), f"mistify: {_of_system(error)}")
        raise typer.Exit(EXIT_FAILED) from error


def _of_system(error: OSError) -> str:
    """Return an error of the operating system for people: the file if it is known, and the way to fix it."""
    files = " or ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    reason = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0, "")
    return f"{files}{': ' if files else ''}{reason}{'; ' if advice else ''}{advice}"
