"""The command line `mistify`: plan and port goals, add goals, manage jobs, run, tune and monitor packages."""

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NoReturn

import typer

from mistify.config.reading import OF_ANY_JOB, parse_batch
from mistify.config.timing import with_time
from mistify.jobs.job import JobPriority
from mistify.tokens import read_token
from mistify.version import VersionOption
from mistify_client.cli.commands import Commands
from mistify_client.cli.errors import errors_of, reported_errors
from mistify_client.cli.options import ExplainOption, TimeOption, TokenFile, server_option
from mistify_client.cli.serving import Serving, check_config
from mistify_client.files import output_directory, read_text

app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

ConfigArgument = Annotated[Path, typer.Argument(help="JSON file with the goals.", metavar="CONFIG")]
OutOption = Annotated[Path, typer.Option(help="Directory for the packages and the report.")]
PortingServer = Annotated[
    str | None,
    server_option("Default: a server started for this command."),
]
PortingStore = Annotated[
    Path | None,
    typer.Option("--store", help="Store of the server started for this command. Default: OUT/.mistify."),
]
DataRoots = Annotated[
    list[Path] | None,
    typer.Option(
        envvar="MISTIFY_DATA_ROOT",
        help="Directory with models and data on this machine; repeatable. Files that CONFIG names there are "
        "uploaded to the --server. Default: the directory of CONFIG and the current directory.",
    ),
]


@app.callback()
def mistify(version: VersionOption = False) -> None:
    """Options before a command."""


@app.command()
def port(
    config: ConfigArgument,
    *,
    out: OutOption,
    server: PortingServer = None,
    token_file: TokenFile = None,
    data_root: DataRoots = None,
    store: PortingStore = None,
    name: Annotated[str, typer.Option(help="Name of the job, for people.", show_default="none")] = "",
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Word by which to find the job, such as team=vision; repeatable."),
    ] = None,
    priority: Annotated[
        JobPriority, typer.Option(help="Which of several jobs on the server goes first.")
    ] = JobPriority.NORMAL,
    time: TimeOption = None,
    explain: ExplainOption = False,
) -> None:
    """Port a model to every goal of CONFIG.

    Repeating the command resumes the same job, unless it was cancelled, or CONFIG or a file that it names has
    changed. Exit codes: 0 all goals met, 11 some goals not met, 1 the job failed, 2 invalid input and nothing
    was started, 3 something named in the input does not exist, 5 the token was rejected, 8 no server, 9
    cancelled, 15 the job runs, but the token has no scope to read its progress, 130 interrupted.
    """
    with reported_errors(), errors_of(str(config)):
        text = _timed(read_text(config), time)
        token, roots = read_token(token_file), _roots(data_root, config)
        store = _store_directory(store, out)
        serving = Serving(server, token, store, roots)
        check_config(text, str(config), serving)
        output_directory(out)
        from mistify_client.cli.session import port_goals  # noqa: PLC0415 (only for valid configs)

        code = port_goals(text, out, serving, name=name, tags=tag or (), priority=priority, explain=explain)
    raise typer.Exit(code)


@app.command()
def plan(
    config: ConfigArgument,
    *,
    server: PortingServer = None,
    token_file: TokenFile = None,
    data_root: DataRoots = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Store with earlier jobs, used for the predictions. Default: none."),
    ] = None,
    time: TimeOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the result of porting to the goals of CONFIG, without starting a job.

    Shows the goal tree, the algorithm of each edge with the reason, and the expected costs, seconds and
    accuracy, with 95% bounds. For the prediction, a copy of the source is tuned for a few seconds. Exit
    codes: as for `mistify port`; 11 means that some goals cannot be met.
    """
    with (
        reported_errors(),
        errors_of(str(config)),
        TemporaryDirectory(prefix="mistify-") as scratch,
    ):
        text = _timed(read_text(config), time)
        token = read_token(token_file)
        roots = _roots(data_root, config)
        serving = Serving(server, token, (store or Path(scratch)).resolve(), roots)
        check_config(text, str(config), serving)
        from mistify_client.cli.session import plan_goals  # noqa: PLC0415 (only for valid configs)

        code = plan_goals(text, serving, as_json=json_)
    raise typer.Exit(code)


@app.command()
def add(
    job_id: Annotated[str, typer.Argument(metavar="JOB")],
    config: ConfigArgument,
    *,
    out: OutOption,
    server: PortingServer = None,
    token_file: TokenFile = None,
    data_root: DataRoots = None,
    store: PortingStore = None,
    explain: ExplainOption = False,
) -> None:
    """Add the goals of CONFIG to a job, and port to them from its nearest checkpoints.

    Goals that name no model, dataset or algorithm use those of the job; otherwise these have to be the job's,
    by the same name or another path. A job that has ended is continued. Repeating the command adds nothing.
    Exit codes: as for `mistify port`, for the added goals.
    """
    with reported_errors(), errors_of(str(config)):
        text = read_text(config)
        goals = parse_batch(text, str(config), server_knows_more=True, common=OF_ANY_JOB)
        only = [goal.id for goal in goals]
        token = read_token(token_file)
        output_directory(out)
        from mistify_client.cli.session import add_goals  # noqa: PLC0415 (only for valid configs)

        serving = Serving(server, token, _store_directory(store, out), _roots(data_root, config))
        code = add_goals(job_id, text, only, out, serving, explain=explain)
    raise typer.Exit(code)


def main() -> NoReturn:
    """Run the command line; SIGTERM has the same effect as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
    sys.exit()


def _timed(text: str, time: str | None) -> str:
    return text if time is None else with_time(text, time)


def _store_directory(store: Path | None, out: Path) -> Path:
    return (store or out / ".mistify").resolve()


def _roots(data_roots: list[Path] | None, config: Path) -> list[Path]:
    return list(dict.fromkeys(root.resolve() for root in data_roots or [config.parent, Path()]))
