"""The command `mistify-server`: run a server, and manage the models, groups, jobs and tokens in a store."""

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mistify.errors import ErrorCode
from mistify.files.places import make_files_private
from mistify.files.writing import write_text
from mistify.jobs.part import GoalSelection
from mistify.parsing.quantities import format_bytes
from mistify.tables import plain_table
from mistify.times import moment
from mistify.version import VersionOption
from mistify.wording import counted
from mistify_server.config import load_config, with_flags
from mistify_server.planning.lookup.models import BUILTIN_MODELS, ModelRepository
from mistify_server.server import serve as run_server
from mistify_server.store.backup import back_up
from mistify_server.store.checking import check_store
from mistify_server.store.directory import open_store, serving
from mistify_server.store.package_signatures import sign_again
from mistify_server.store.removal import remove_jobs
from mistify_server.store_commands import StoreOption, changed, existing, recorded, reported_errors
from mistify_server.telemetry.logs import set_up_log
from mistify_server.token_commands import tokens
from mistify_server.tuning.groups import add_group

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
models = typer.Typer(no_args_is_help=True, help="Models that configs can refer to by name.")
app.add_typer(models, name="models")
groups = typer.Typer(no_args_is_help=True, help="Groups of devices that tune together.")
app.add_typer(groups, name="groups")
jobs = typer.Typer(no_args_is_help=True, help="Jobs in a store.")
app.add_typer(jobs, name="jobs")

app.add_typer(tokens, name="tokens")

signing_keys = typer.Typer(no_args_is_help=True, help="The key that signs the packages of a server.")
app.add_typer(signing_keys, name="signing-keys")

#: More jobs than any store has.
_ALL = 10**9


@app.callback()
def mistify_server(version: VersionOption = False) -> None:
    """Options before a command."""


@app.command()
@with_flags
def serve(
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with these settings; options override it."),
    ] = None,
    **flags: Any,
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    with reported_errors():
        settings = load_config(config, flags)
        set_up_log(settings.log_format)

        def on_ready(address: str, url: str | None) -> None:
            if settings.ready_file is not None:
                write_text(settings.ready_file, address)
            typer.echo(f"listening on {address}")
            if url is not None:
                typer.echo(f"HTTP at {url}")

        asyncio.run(run_server(settings.server_settings(), on_ready))


@app.command()
def check(*, store: StoreOption) -> None:
    """Read the whole store, also artifacts in its bucket, and report what is damaged or missing.

    A server may be using it. Exit code 10: something is damaged or missing.
    """
    with reported_errors():
        checked = check_store(existing(store))
    for problem in checked.problems:
        typer.echo(problem, err=True)
    files = f"{counted(checked.files, 'file')} ({format_bytes(checked.size, 3)})"
    if checked.problems:
        typer.echo(f"read {files}: {counted(len(checked.problems), 'problem')}")
        raise typer.Exit(ErrorCode.CORRUPT_PACKAGE.exit_code)
    typer.echo(f"read {files}: the store is intact")


@app.command()
def backup(
    to: Annotated[Path, typer.Argument(help="Directory: a new one, or that of an earlier backup.")],
    *,
    store: StoreOption,
) -> None:
    """Copy the store into a directory that a server can serve; files copied earlier are not copied again.

    A server may be using the store. Artifacts in a bucket are copied as well. A database in PostgreSQL is
    not: dump it before the files, with the command that is printed. Exit code 10: a file is damaged;
    everything else was copied.
    """
    with reported_errors():
        made = back_up(existing(store), to.resolve())
    for name in made.damaged:
        typer.echo(f"the artifact {name} is damaged or missing; see mistify-server check", err=True)
    for name in made.damaged_uploads:
        typer.echo(f"the upload {name} is damaged; see mistify-server check", err=True)
    files = f"{counted(made.files, 'new file')} ({format_bytes(made.size, 3)})"
    if made.dump_command is None:
        typer.echo(f"copied the database and {files}")
    else:
        typer.echo(f"copied {files}; the database is in PostgreSQL, dump it before the files of each backup:")
        typer.echo(f"  {made.dump_command}")
    if made.bucket is not None:
        typer.echo(
            f"the copy has the artifacts of {made.bucket} in its own directory; to serve it with a bucket, "
            "use another directory of it in --artifacts"
        )
    if made.damaged or made.damaged_uploads:
        raise typer.Exit(ErrorCode.CORRUPT_PACKAGE.exit_code)


@models.command("add")
def add_model(
    name: Annotated[str, typer.Argument(help="Name of the model in configs; case-insensitive.")],
    path: Annotated[Path, typer.Argument(help="The model's file (.keras, .h5 or .onnx), which is copied.")],
    *,
    store: StoreOption,
) -> None:
    """Add a model to the repository."""
    store = store.resolve()
    with reported_errors(), open_store(store) as opened, recorded(store, "models add", name):
        model = ModelRepository(opened.models, opened.artifacts).add(name, path)
    typer.echo(f"added {model.name} ({model.artifact})")


@models.command("list")
def list_models(*, store: StoreOption) -> None:
    """List the models that configs can refer to by name."""
    table = plain_table("name", "file", "artifact")
    with reported_errors(), open_store(store.resolve()) as opened:
        for model in opened.models.all():
            table.add_row(model.name, model.file_name, model.artifact)
    for name in BUILTIN_MODELS:
        table.add_row(name, "built in", "")
    Console().print(table)


@models.command("remove")
def remove_model(name: str, *, store: StoreOption) -> None:
    """Remove a model from the repository. Jobs that already use it are not affected."""
    with reported_errors(), changed(store, "models remove", name) as opened:
        opened.models.remove(name)
    typer.echo(f"removed {name}")


@groups.command("add")
def add_tuning_group(
    name: Annotated[str, typer.Argument(help="Name of the group.")],
    *,
    job: Annotated[str, typer.Option(help="Job that made the packages to tune.")],
    scales: Annotated[
        str,
        typer.Option(
            metavar="JSON", help='Settings of the measure, such as {"location_km": 1, "time_hours": 24}.'
        ),
    ],
    batch: Annotated[
        int,
        typer.Option(
            min=0,
            help="Index of the job's batch, from 0. Goals that share model, data and algorithm form a batch.",
        ),
    ] = 0,
    correlation: Annotated[
        str, typer.Option(help="Correlation measure for comparing devices.")
    ] = "spatiotemporal",
    store: StoreOption,
) -> None:
    """Let devices with packages from a job tune together."""
    with reported_errors(), changed(store, "groups add", name) as opened:
        add_group(opened.tuning, name, job_id=job, batch=batch, correlation=correlation, settings_text=scales)
    typer.echo(f"added {name}")


@groups.command("list")
def list_groups(*, store: StoreOption) -> None:
    """List the groups that devices can join."""
    table = plain_table("name", "job", "batch", "correlation", "settings", "models")
    with reported_errors(), open_store(existing(store)) as opened:
        for group in opened.tuning.groups():
            models = len(opened.tuning.publications(group.name))
            settings = json.dumps(group.settings)
            table.add_row(
                group.name, group.job_id, str(group.batch), group.correlation, settings, str(models)
            )
    Console().print(table)


@groups.command("remove")
def remove_group(name: str, *, store: StoreOption) -> None:
    """Remove a group and everything that its members published."""
    with reported_errors(), changed(store, "groups remove", name) as opened:
        opened.tuning.remove_group(name)
    typer.echo(f"removed {name}")


@jobs.command("list")
def list_jobs(*, store: StoreOption) -> None:
    """List the jobs of all tenants, newest first."""
    table = plain_table("job", "state", "goals", "submitted", "by")
    with reported_errors(), open_store(existing(store)) as opened:
        page = opened.jobs.page(_ALL, _ALL, selection=GoalSelection())
        for part in page.jobs:
            job = part.job
            by = str(opened.jobs.submitter(job.id))
            table.add_row(job.id, job.state.value, str(part.goal_count), moment(job.created_unix_ms), by)
    Console().print(table)
    for unreadable in page.unreadable:
        typer.echo(unreadable.reason, err=True)


@jobs.command("remove")
def remove(
    job: Annotated[list[str] | None, typer.Argument(help="Ids of finished jobs.")] = None,
    *,
    store: StoreOption,
) -> None:
    """Remove jobs with their packages, and all files that are no longer in use.

    Stop the server first.
    """
    with reported_errors():
        store = existing(store)
        with recorded(store, "jobs remove", " ".join(job or ())):
            freed = remove_jobs(store, job or ())
    typer.echo(f"freed {format_bytes(freed, 3)}")


@signing_keys.command("list")
def list_signing_keys(*, store: StoreOption) -> None:
    """List the public keys, the current one last, for comparison with what `mistify trust` shows."""
    with reported_errors(), open_store(existing(store)) as opened:
        for key in opened.signing_keys.public().keys:
            typer.echo(key)


@signing_keys.command("rotate")
def rotate_signing_key(
    *,
    stolen: Annotated[
        bool,
        typer.Option(
            "--stolen",
            help="Others may have the current key: do not let it sign the new one, sign all packages again, "
            "and have devices trust the new key. Stop the server first.",
        ),
    ] = False,
    store: StoreOption,
) -> None:
    """Replace the key that signs packages, and print the new one.

    The former key signs it, so that devices that trust the former one accept both; a running server notices
    at once. Packages stay as they are.
    """
    with reported_errors():
        store = existing(store)
        exclusive = serving(store) if stolen else nullcontext()
        with exclusive, changed(store, "signing-keys rotate", "stolen" if stolen else "") as opened:
            keys = opened.signing_keys.rotate(stolen=stolen)
            if stolen:
                sign_again(opened)
    typer.echo(keys.current)


def main() -> None:
    """Run the command line; files it creates are readable only by the current user."""
    make_files_private()
    app()


if __name__ == "__main__":
    main()
