"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

PackageOption = Annotated[Path, typer.Option("--package", metavar="DIR", help="Directory of the package.")]
TokenFile = Annotated[Path | None, typer.Option(help="File that holds the server's access token.")]
ServerOption = Annotated[str, typer.Option("--server", envvar="MISTIFY_SERVER", metavar="HOST:PORT")]
