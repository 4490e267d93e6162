"""The commands `mistify-server tokens`."""

from dataclasses import astuple
from itertools import chain
from typing import Annotated

import typer
from rich.console import Console

from mistify.parsing.quantities import format_bytes
from mistify.tables import plain_table
from mistify.times import moment
from mistify_server.identity.authentication import MOST_DAYS, create_token
from mistify_server.identity.callers import DEFAULT_TENANT, CallerId, Scope
from mistify_server.identity.quotas import change_limits, limits_of
from mistify_server.store.directory import open_store
from mistify_server.store_commands import StoreOption, changed, existing, reported_errors

Tenant = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Tenant of the token: its holder sees only this tenant's jobs, files and devices.",
    ),
]

tokens = typer.Typer(
    no_args_is_help=True, help="Tokens of callers; a running server notices changes at once."
)

MaxUploads = Annotated[
    str | None,
    typer.Option(metavar="SIZE|none", help="Models and data that the server keeps for the caller: 5GB."),
]
MaxJobs = Annotated[str | None, typer.Option(metavar="N|none", help="Unfinished jobs of the caller.")]
MaxWorkers = Annotated[
    str | None,
    typer.Option(metavar="N|none", help="Steps of the caller's jobs in progress; further ones wait."),
]


@tokens.command("add")
def add_token(
    name: Annotated[str, typer.Argument(help="Name of the caller.")],
    *,
    scope: Annotated[
        list[Scope], typer.Option(help="What the caller may do; may be repeated. See docs/access.md.")
    ],
    days: Annotated[
        int | None, typer.Option(min=1, max=MOST_DAYS, help="Days until it expires.", show_default="never")
    ] = None,
    max_uploads: MaxUploads = None,
    max_jobs: MaxJobs = None,
    max_workers: MaxWorkers = None,
    tenant: Tenant = DEFAULT_TENANT,
    store: StoreOption,
) -> None:
    """Make a token for a caller, and print it; it cannot be shown again.

    Limits that are not set are those of a revoked token of this name, or none.
    """
    with reported_errors(), changed(store, "tokens add", str(CallerId(tenant, name))) as opened:
        limits = limits_of(max_uploads, max_jobs, max_workers)
        _, secret = create_token(opened.of(tenant).tokens, name, scope, days, limits)
    typer.echo(secret)


@tokens.command("limit")
def limit_token(
    name: str,
    *,
    max_uploads: MaxUploads = None,
    max_jobs: MaxJobs = None,
    max_workers: MaxWorkers = None,
    tenant: Tenant = DEFAULT_TENANT,
    store: StoreOption,
) -> None:
    """Change limits of a token; those that are not given stay. Its jobs and uploads stay as they are."""
    with reported_errors(), changed(store, "tokens limit", str(CallerId(tenant, name))) as opened:
        change_limits(opened.of(tenant).tokens, name, limits_of(max_uploads, max_jobs, max_workers))
    typer.echo(f"changed {name}")


@tokens.command("list")
def list_tokens(*, store: StoreOption) -> None:
    """List the tokens of all tenants, without their secrets."""
    table = plain_table("name", "scopes", "made", "expires", "max. uploads", "jobs", "workers")
    with reported_errors(), open_store(existing(store)) as opened:
        every = (opened.of(tenant).tokens.all() for tenant in opened.tenants())
        for token in chain.from_iterable(every):
            expires = "never" if token.expires_unix_ms is None else moment(token.expires_unix_ms)
            uploads, *others = astuple(token.limits)
            table.add_row(
                str(token.holder),
                ", ".join(sorted(token.scopes)),
                moment(token.created_unix_ms),
                expires,
                "" if uploads is None else format_bytes(float(uploads), 3),
                *("" if limit is None else f"{limit:,}" for limit in others),
            )
    Console().print(table)


@tokens.command("revoke")
def revoke_token(name: str, *, tenant: Tenant = DEFAULT_TENANT, store: StoreOption) -> None:
    """Revoke a token; the server refuses it from the next call. Its limits stay, also for its jobs."""
    with reported_errors(), changed(store, "tokens revoke", str(CallerId(tenant, name))) as opened:
        opened.of(tenant).tokens.revoke(name)
    typer.echo(f"revoked {name}")
