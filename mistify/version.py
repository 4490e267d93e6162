"""The installed version, and the option `--version` of commands."""

from importlib.metadata import version
from typing import Annotated

import typer


def installed_version() -> str:
    """Return the version of the installed package `mistify-porting`."""
    return version("mistify-porting")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(installed_version())
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
]
