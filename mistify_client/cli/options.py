"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mistify.machine import MOST_THREADS
from mistify.parsing.quantities import parse_duration
from mistify.parsing.validation import InvalidValue
from mistify.wire.address import EXPECTED, is_address

PackageOption = Annotated[Path, typer.Option("--package", metavar="DIR", help="Directory of the package.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, max=MOST_THREADS, help="Default: the package's.")
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Say why algorithms and precisions were chosen, and all notes.")
]
TokenFile = Annotated[Path | None, typer.Option(help="File with the server's access token.")]


def server_option(help_text: str | None = None) -> Any:
    """Return the option `--server`, whose value must be an address."""
    return typer.Option(
        "--server", envvar="MISTIFY_SERVER", metavar="HOST:PORT", help=help_text, callback=_checked_address
    )


def _checked_address(text: str | None) -> str | None:
    if text is not None and not is_address(text):
        raise typer.BadParameter(f'got "{text}"; expected {EXPECTED}')
    return text


def _checked_duration(text: str | None) -> str | None:
    if text is not None:
        try:
            parse_duration(text)
        except InvalidValue as error:
            raise typer.BadParameter(f'got "{text}"; expected {error.expected}') from error
    return text


TimeOption = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="TIME",
        help="Choose steps and algorithms so that all goals are done after this time, such as 10min. "
        "Default: that of CONFIG, or as many steps as usual.",
        callback=_checked_duration,
    ),
]

ServerOption = Annotated[str, server_option()]
OptionalServer = Annotated[str | None, server_option()]
