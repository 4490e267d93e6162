"""The command `whoami`: the name, tenant and scopes of a token, its limits, and what its holder uses."""

import typer
from rich.console import Console

from mistify.parsing.quantities import format_bytes
from mistify.quotas import CallerStatus
from mistify.tables import plain_table
from mistify.tokens import read_token
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import ServerOption, TokenFile
from mistify_client.cli.serving import announcing_backoff
from mistify_client.porting.printing import print_line
from mistify_client.rpc.porting import PortingClient


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(whoami)


def whoami(server: ServerOption, token_file: TokenFile = None) -> None:
    """Show the name, tenant and scopes of the token, its limits, and what its holder uses at present."""
    with reported_errors():
        with PortingClient(server, read_token(token_file), backoff=announcing_backoff(server)) as client:
            status = client.caller()
        _show(status, Console())


def _show(status: CallerStatus, console: Console) -> None:
    tenant = f" of the tenant {status.tenant}" if status.tenant else ""
    print_line(console, f"{status.name}{tenant}: {', '.join(status.scopes)}")
    table = plain_table("", "in use", "limit")
    limits, usage = status.limits, status.usage
    table.add_row("uploads", _size(usage.uploads), _size(limits.uploads))
    table.add_row("unfinished jobs", f"{usage.jobs:,}", _number(limits.jobs))
    table.add_row("steps in progress", f"{usage.workers:,}", _number(limits.workers))
    console.print(table)


def _size(size: int | None) -> str:
    return "none" if size is None else format_bytes(size, 3)


def _number(number: int | None) -> str:
    return "none" if number is None else f"{number:,}"
