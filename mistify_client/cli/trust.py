"""The command `trust`: run packages of a server, or a single package, and no others."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mistify.errors import Problem, invalid_config
from mistify.package.opened import Package
from mistify.tokens import read_token
from mistify.wire.address import is_address
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import TokenFile
from mistify_client.cli.serving import announcing_backoff
from mistify_client.porting.printing import print_line
from mistify_client.rpc.porting import PortingClient
from mistify_client.runtime.trust import add_trusted, is_entry, looks_like_entry, trusted_file


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(trust)


def trust(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="HOST:PORT of a server, a key, or the directory of a package."),
    ],
    *,
    token_file: TokenFile = None,
) -> None:
    """Run only packages that this server has signed, or this one, from now on; repeatable.

    Adds the keys of the server to the file MISTIFY_TRUSTED, by default ~/.config/mistify/trusted. Compare
    them with those that `mistify-server signing-keys list` prints on the server: without TLS, another one may
    have answered. To trust it no longer, remove its lines; to run any package again, remove the file.
    """
    with reported_errors():
        entries = _entries(what, token_file)
        added = add_trusted(entries, what)
        for entry in entries:
            print_line(Console(), entry if entry in added else f"{entry} (trusted before)")
        print_line(Console(), f"trusted by {trusted_file()}")


def _entries(what: str, token_file: Path | None) -> tuple[str, ...]:
    """Return what a server, a key or a package adds.

    Raises:
        MistifyError: INVALID_CONFIG, it is none of them; or the server cannot be reached.
    """
    if is_entry(what):
        return (what,)
    if Path(what).is_dir():
        package = Package.open(Path(what))
        package.verify()
        return (f"sha256:{package.digest}",)
    if looks_like_entry(what) or not is_address(what):
        expected = "HOST:PORT or tls://HOST:PORT of a server, ed25519:..., or the directory of a package"
        raise invalid_config([Problem("WHAT", what, expected, "check the spelling")], "the command line")
    with PortingClient(what, read_token(token_file), backoff=announcing_backoff(what)) as client:
        return client.signing_keys().keys
