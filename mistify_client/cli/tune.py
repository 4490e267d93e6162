"""The commands for tuning: `mistify tune` and `mistify withdraw`."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mistify.errors import Problem, invalid_config
from mistify.machine import MOST_THREADS
from mistify.package.training import Training
from mistify.package.verification import verify
from mistify.tokens import read_token
from mistify_client.cli.errors import EXIT_INTERRUPTED, reported_errors
from mistify_client.cli.options import PackageOption, ServerOption, TokenFile, server_option
from mistify_client.porting.progress import display
from mistify_client.runtime.versions import current
from mistify_client.tuning.config import hints_of, read_tuning_file
from mistify_client.tuning.examples import read_examples
from mistify_client.tuning.peers.exchange import Peering
from mistify_client.tuning.session import TuningOutcome, tune, withdraw
from mistify_client.tuning.trainer import training_of


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    app.command(name="tune")(tune_package)
    app.command(name="withdraw")(withdraw_package)


def tune_package(
    package: PackageOption,
    data: Annotated[
        Path, typer.Option(metavar="FILE", help=".npz file with arrays named like the inputs and outputs.")
    ],
    *,
    server: Annotated[
        str | None,
        server_option("Default: tune without peers."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="TUNING.TOML", help="Group, hints and privacy.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Other data, to measure what the package forgets."),
    ] = None,
    token_file: TokenFile = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="Default: LiteRT's own choice.")
    ] = None,
) -> None:
    """Tune a package on the data of this device, which never leave it; with --server also with its peers.

    A better result becomes the current version of the package, and running models switch to it. Repeating the
    command resumes an interrupted tuning. Exit code 4: another process is tuning the package.
    """
    with reported_errors():
        settings = None if config is None else read_tuning_file(config)
        if server is not None and settings is None:
            problem = Problem(
                "--config", "nothing", "a file that names the group", "give one, or no --server"
            )
            raise invalid_config([problem], "the command line")
        version = current(package)
        manifest = verify(version)
        training = training_of(version, manifest)
        examples = read_examples(data, manifest, training)
        kept = None if keep is None else read_examples(keep, manifest, training)
        peering = None
        if server is not None and settings is not None:
            hints = hints_of(settings.hints, examples, manifest, training)
            peering = Peering(server, settings.group, hints, settings.peers, read_token(token_file))
        with _resumable(), display(Console()) as shown:
            outcome = tune(
                package,
                examples,
                peering,
                settings.privacy if settings else None,
                settings=settings.training_settings() if settings else None,
                keep=kept,
                threads=threads,
                display=shown,
            )
        _print_outcome(outcome, training)


def withdraw_package(
    package: PackageOption,
    server: ServerOption,
    config: Annotated[Path, typer.Option(metavar="TUNING.TOML", help="File that names the group.")],
    token_file: TokenFile = None,
) -> None:
    """Leave a group of peers: the server deletes the models that this package has published there.

    Peers may already have copies. Tuning again joins the group and publishes again.
    """
    with reported_errors():
        group = read_tuning_file(config).group
        withdraw(package, Peering(server, group, token=read_token(token_file)))
        typer.echo(f"nothing of {package} is left in the group {group}")


@contextmanager
def _resumable() -> Iterator[None]:
    """On Ctrl-C, print the command that resumes the tuning, and exit."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        command = shlex.join(["mistify", *sys.argv[1:]])
        typer.echo(f"Interrupted. The same command continues after the last pass: {command}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from interrupt


def _print_outcome(outcome: TuningOutcome, training: Training) -> None:
    """Print accuracy and loss before and after, the traffic with peers, and the version installed."""
    began, ended = outcome.began, outcome.ended
    if training.has_accuracy:
        typer.echo(f"accuracy on held-out examples: {began.accuracy:.1%} before, {ended.accuracy:.1%} now")
    typer.echo(f"loss: {began.loss:.4g} before, {ended.loss:.4g} now")
    traffic = outcome.traffic
    if outcome.rounds or traffic.sent:
        typer.echo(
            f"rounds with peers: {outcome.rounds}; {traffic.sent:,} bytes sent, {traffic.received:,} received"
        )
    for note in outcome.notes:
        typer.echo(f"note: {note}")
    if outcome.kept_before is not None and outcome.kept_after is not None:
        typer.echo(f"on the examples to keep: {outcome.kept_before} before, {outcome.kept_after} now")
    if outcome.forgotten:
        typer.echo(f"warning: {outcome.forgotten}")
    installed = "nothing was gained" if outcome.version is None else f"installed: {outcome.version}"
    typer.echo(installed)
