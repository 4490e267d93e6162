"""The command line `mistify-server`: serve, and look after models, groups and jobs of a store."""

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.parsing.quantities import format_bytes
from mistify_server.api.listening import DEFAULT_LISTEN, Certificate
from mistify_server.coordinator.groups import add_group
from mistify_server.coordinator.storage import MEMORY
from mistify_server.planning.resolution.models import BUILTIN_MODELS, ModelRepository
from mistify_server.server import ServerSettings
from mistify_server.server import serve as run_server
from mistify_server.store.directory import open_store
from mistify_server.store.removal import remove_jobs

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
models = typer.Typer(no_args_is_help=True, help="Models that configs can name.")
app.add_typer(models, name="models")
groups = typer.Typer(no_args_is_help=True, help="Groups of devices that tune together.")
app.add_typer(groups, name="groups")
jobs = typer.Typer(no_args_is_help=True, help="Jobs of a store.")
app.add_typer(jobs, name="jobs")

#: More jobs than any store has.
_ALL = 10**9

StoreOption = Annotated[Path, typer.Option(help="Directory of the server's jobs, models and packages.")]


@app.command()
def serve(
    *,
    store: StoreOption,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    data_root: Annotated[
        list[Path] | None,
        typer.Option(help="Directory with models and data, may be repeated."),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="local|ray|ray://HOST:PORT",
            help="Where tasks run: on this machine, on a Ray cluster of this machine, on any Ray cluster.",
        ),
    ] = "local",
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Tasks that run at the same time.",
            show_default="1; with Ray the cluster's CPUs",
        ),
    ] = None,
    index: Annotated[
        str,
        typer.Option(metavar="memory|redis://HOST:PORT", help="Where the peers of a device are looked up."),
    ] = MEMORY,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that callers have to send.")
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="PEM file of the server's certificate chain: callers say tls://HOST:PORT."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its private key.")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="File to write the address into as soon as calls are answered.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Whether unfinished jobs of the store go on.")
    ] = True,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", help="Stop also when the program that started it ends.")
    ] = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C."""

    def on_ready(address: str) -> None:
        if ready_file is not None:
            _write(ready_file, address)
        typer.echo(f"listening on {address}")

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with _reported_errors():
        settings = ServerSettings(
            store=store.resolve(),
            listen=listen,
            data_roots=tuple(data_root or ()),
            engine=engine,
            slots=slots,
            index=index,
            certificate=_certificate(tls_certificate, tls_key),
            token=None if token_file is None else _token(token_file),
            resume=resume,
            until_stdin_closes=until_stdin_closes,
        )
        asyncio.run(run_server(settings, on_ready))


@models.command("add")
def add_model(
    name: Annotated[str, typer.Argument(help="What configs call it, in any case.")],
    path: Annotated[Path, typer.Argument(help="Its file (.keras or .h5), which is copied.")],
    *,
    store: StoreOption,
) -> None:
    """Add a model to the repository."""
    with _reported_errors(), open_store(store.resolve()) as opened:
        model = ModelRepository(opened.models, opened.artifacts).add(name, path)
    typer.echo(f"added {model.name} ({model.artifact})")


@models.command("list")
def list_models(*, store: StoreOption) -> None:
    """List the models that configs can name."""
    table = Table("name", "file", "artifact")
    with _reported_errors(), open_store(store.resolve()) as opened:
        for model in opened.models.all():
            table.add_row(model.name, model.file_name, model.artifact)
    for name in BUILTIN_MODELS:
        table.add_row(name, "built in", "")
    Console().print(table)


@models.command("remove")
def remove_model(name: str, *, store: StoreOption) -> None:
    """Remove a model from the repository; jobs that use it already go on."""
    with _reported_errors(), open_store(store.resolve()) as opened:
        opened.models.remove(name)
    typer.echo(f"removed {name}")


@groups.command("add")
def add_tuning_group(
    name: Annotated[str, typer.Argument(help="What devices join it by.")],
    *,
    job: Annotated[str, typer.Option(help="The job whose packages they tune.")],
    scales: Annotated[
        str,
        typer.Option(
            metavar="JSON", help='Settings of the measure, such as {"location_km": 1, "time_hours": 24}.'
        ),
    ],
    batch: Annotated[int, typer.Option(min=0, help="Which of the job's collective batches.")] = 0,
    correlation: Annotated[
        str, typer.Option(help="The measure by which devices are compared.")
    ] = "spatiotemporal",
    store: StoreOption,
) -> None:
    """Let devices that have packages of a job tune together."""
    with _reported_errors(), open_store(store.resolve()) as opened:
        add_group(opened.tuning, name, job_id=job, batch=batch, correlation=correlation, settings_text=scales)
    typer.echo(f"added {name}")


@groups.command("list")
def list_groups(*, store: StoreOption) -> None:
    """List the groups that devices can join."""
    table = Table("name", "job", "batch", "correlation", "settings", "models")
    with _reported_errors(), open_store(store.resolve()) as opened:
        for group in opened.tuning.groups():
            models = len(opened.tuning.publications(group.name))
            settings = json.dumps(group.settings)
            table.add_row(
                group.name, group.job_id, str(group.batch), group.correlation, settings, str(models)
            )
    Console().print(table)


@groups.command("remove")
def remove_group(name: str, *, store: StoreOption) -> None:
    """Remove a group, with what its members have published."""
    with _reported_errors(), open_store(store.resolve()) as opened:
        opened.tuning.remove_group(name)
    typer.echo(f"removed {name}")


@jobs.command("list")
def list_jobs(*, store: StoreOption) -> None:
    """List all jobs, the newest first."""
    table = Table("job", "state", "goals", "submitted")
    with _reported_errors(), open_store(store.resolve()) as opened:
        for job in opened.jobs.jobs(_ALL):
            submitted = datetime.fromtimestamp(job.created_unix_ms / 1000, UTC)
            table.add_row(job.id, job.state.value, str(len(job.goals)), f"{submitted:%Y-%m-%d %H:%M} UTC")
    Console().print(table)


@jobs.command("remove")
def remove(
    job: Annotated[list[str] | None, typer.Argument(help="Ended jobs.")] = None, *, store: StoreOption
) -> None:
    """Remove jobs with their packages, and all files that nothing needs any more; the server is stopped."""
    with _reported_errors():
        freed = remove_jobs(store.resolve(), job or ())
    typer.echo(f"{format_bytes(freed, 3)} are free")


@contextmanager
def _reported_errors() -> Iterator[None]:
    """Say what went wrong on standard error, and end with the exit code of the catalogue."""
    try:
        yield
    except MistifyError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.code.exit_code) from error


def _certificate(chain: Path | None, key: Path | None) -> Certificate | None:
    if chain is not None and key is not None:
        return Certificate(chain, key)
    if chain is None and key is None:
        return None
    given, missing = (
        ("--tls-key", "--tls-certificate") if chain is None else ("--tls-certificate", "--tls-key")
    )
    problem = Problem(missing, "nothing", f"a PEM file, as {given} is given", "give both, or neither")
    raise invalid_config([problem], "the command line")


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise MistifyError(ErrorCode.NOT_FOUND, f"the token file {path} cannot be read: {error}") from error
    if not token:
        raise MistifyError(ErrorCode.INVALID_CONFIG, f"the token file {path} is empty; write a token into it")
    return token


def _write(path: Path, text: str) -> None:
    """Write a file in one step, so that nobody reads half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text)
    os.replace(partial, path)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
