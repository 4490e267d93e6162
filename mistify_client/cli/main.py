"""The command line `mistify`: plan and port goals, add goals, manage jobs, run, tune and monitor packages."""

import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from mistify.config.reading import parse_batch
from mistify.jobs.job import Goal
from mistify.tokens import read_token
from mistify.wording import counted, listed, names_by
from mistify_client.cli import jobs as job_commands
from mistify_client.cli import monitor as monitor_commands
from mistify_client.cli import profile as profiling_commands
from mistify_client.cli import report as report_commands
from mistify_client.cli import tune as tuning_commands
from mistify_client.cli.errors import EXIT_INTERRUPTED, reported_errors
from mistify_client.cli.options import TokenFile
from mistify_client.cli.run import try_package
from mistify_client.cli.serving import Serving, check_config
from mistify_client.files import output_directory, read_text
from mistify_client.porting.follow import EXIT_UNMET, finish, follow
from mistify_client.porting.local_files import local_files
from mistify_client.porting.plan_report import plan_report, plan_tree
from mistify_client.porting.progress import Display, display
from mistify_client.porting.submission import attach
from mistify_client.rpc.files import FilesClient
from mistify_client.rpc.porting import PortingClient

_ANNOUNCED_SECONDS = 1.0

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
job_commands.register(app)
report_commands.register(app)
monitor_commands.register(app)
tuning_commands.register(app)
profiling_commands.register(app)

ConfigArgument = Annotated[Path, typer.Argument(help="JSON file with the goals.", metavar="CONFIG")]
OutOption = Annotated[Path, typer.Option(help="Directory for the packages and the report.")]
PortingServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="MISTIFY_SERVER",
        metavar="HOST:PORT",
        help="Default: a server started for this command.",
    ),
]
PortingStore = Annotated[
    Path | None,
    typer.Option("--store", help="Store of the server started for this command. Default: OUT/.mistify."),
]
DataRoots = Annotated[
    list[Path] | None,
    typer.Option(
        envvar="MISTIFY_DATA_ROOT",
        help="Directory with models and data of this machine, may be repeated; what CONFIG names there is "
        "sent to the --server. Default: the config's and the current one.",
    ),
]


@app.command()
def port(
    config: ConfigArgument,
    *,
    out: OutOption,
    server: PortingServer = None,
    token_file: TokenFile = None,
    data_root: DataRoots = None,
    store: PortingStore = None,
) -> None:
    """Port a model to every goal of CONFIG.

    The same command again resumes the same job. Exit codes: 0 all goals met, 11 some goals not met, 1 the job
    failed, 2 something is wrong with the input and nothing was started, 3 something that was named does not
    exist, 5 the token is refused, 8 no server, 9 cancelled, 130 interrupted.
    """
    with reported_errors():
        text = read_text(config)
        token, roots = read_token(token_file), _roots(data_root, config)
        store = _store_directory(store, out)
        check_config(text, str(config), Serving(server, store, roots), token)
        output_directory(out)
        console = Console()
        with _session(Serving(server, store, roots), token, console) as (client, shown):
            text = _with_files_sent(text, roots, server, token, shown.show_line)
            job = attach(client, text, out, server or f"store:{store}")
            shown.show_line(f"job {job.id}, {counted(len(job.goals), 'goal')}")
            _warn(job.goals, shown)
            job = follow(client, job, out, shown)
        code = finish(job, out, console)
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
        typer.Option(help="Store with earlier jobs that predictions learn from. Default: none."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the result of porting to the goals of CONFIG; nothing is started.

    Shows the goal tree, the algorithm of each edge with the reason, and the expected costs, seconds and
    accuracy, with bounds that hold 19 times out of 20. For them a copy of the source is tuned for some
    seconds. Exit codes: those of `mistify port`; 11 means that some goals cannot be met.
    """
    with reported_errors(), TemporaryDirectory(prefix="mistify-") as scratch:
        text = read_text(config)
        token = read_token(token_file)
        roots = _roots(data_root, config)
        serving = Serving(server, (store or Path(scratch)).resolve(), roots)
        check_config(text, str(config), serving, token)
        with (
            serving.started(resume=False) as (address, backoff),
            PortingClient(address, token, backoff=backoff) as client,
        ):
            predicted = client.plan(
                _with_files_sent(text, roots, server, token, partial(typer.echo, err=True))
            )
    if json_:
        typer.echo(json.dumps(plan_report(predicted), indent=2))
    else:
        Console().print(plan_tree(predicted), highlight=False)
    raise typer.Exit(EXIT_UNMET if predicted.out_of_reach else 0)


@app.command()
def add(
    job_id: Annotated[str, typer.Argument(metavar="JOB")],
    config: ConfigArgument,
    *,
    out: OutOption,
    server: PortingServer = None,
    token_file: TokenFile = None,
    store: PortingStore = None,
) -> None:
    """Add the goals of CONFIG to a job, and port to them from its nearest checkpoints.

    CONFIG names the model, data and algorithm of the job. A job that has ended is continued. The same command
    again adds nothing twice. Exit codes: those of `mistify port`, for the added goals.
    """
    with reported_errors():
        text = read_text(config)
        only = [goal.id for goal in parse_batch(text, str(config), server_knows_more=True)]
        token = read_token(token_file)
        output_directory(out)
        console = Console()
        # The job knows the paths of its models and data, so no roots are needed.
        serving = Serving(server, _store_directory(store, out), [])
        with _session(serving, token, console) as (client, shown):
            text = _with_files_sent(text, _roots(None, config), server, token, shown.show_line)
            job = client.add_goals(job_id, text)
            shown.show_line(f"job {job.id}, {len(only):,} of {counted(len(job.goals), 'goal')}")
            _warn((goal for goal in job.goals if goal.id in only), shown)
            job = follow(client, job, out, shown, only)
        code = finish(job, out, console, only)
    raise typer.Exit(code)


@app.command()
def run(
    package: Annotated[Path, typer.Argument(metavar="PACKAGE_DIR")],
    inputs: Annotated[
        list[Path], typer.Option("--input", help=".npy file; repeat it for each input, in order.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write: .npy, or .npz for several outputs.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: the package's.")] = None,
) -> None:
    """Run a package on arrays and print how long it takes."""
    with reported_errors():
        for line in try_package(package, inputs, output, threads):
            typer.echo(line)


def main() -> NoReturn:
    """Run the command line; SIGTERM has the same effect as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
    sys.exit()


@contextmanager
def _session(
    serving: Serving, token: str | None, console: Console
) -> Iterator[tuple[PortingClient, Display]]:
    """Yield a client of the server to port with, and the display for its job."""
    with (
        _resumable(serving.remote),
        serving.started() as (address, backoff),
        display(console) as shown,
        PortingClient(
            address, token, backoff=replace(backoff, wait=_announced_wait(shown, address))
        ) as client,
    ):
        yield client, shown


def _with_files_sent(
    text: str,
    roots: Sequence[Path],
    server: str | None,
    token: str | None,
    show_line: Callable[[str], object],
) -> str:
    """Send the models and data that a config names to another machine's server; return the config for it."""
    if server is None:
        return text
    files = local_files(text, roots)
    with FilesClient(server, token) as client:
        files.send(client, show_line)
    return files.text


@contextmanager
def _resumable(server: str | None) -> Iterator[None]:
    """On Ctrl-C, print the command that resumes the job, and exit."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        fate = f"goes on at {server}" if server else "is kept as it stands"
        command = shlex.join(["mistify", *sys.argv[1:]])
        typer.echo(f"Interrupted; the job {fate}. The same command resumes it: {command}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from interrupt


def _announced_wait(shown: Display, address: str) -> Callable[[float], None]:
    """Return a function that sleeps and, unless the time is short, prints the reason."""

    def wait(seconds: float) -> None:
        if seconds >= _ANNOUNCED_SECONDS:
            shown.show_line(f"the server at {address} is away, trying again in {seconds:.0f} s")
        time.sleep(seconds)

    return wait


def _warn(goals: Iterable[Goal], shown: Display) -> None:
    """Show the warnings about goals that are likely to be missed."""
    for warning, names in names_by((goal.id, goal.warning) for goal in goals if goal.warning).items():
        shown.show_line(f"{listed(names)}: {warning}")


def _store_directory(store: Path | None, out: Path) -> Path:
    return (store or out / ".mistify").resolve()


def _roots(data_roots: list[Path] | None, config: Path) -> list[Path]:
    return list(dict.fromkeys(root.resolve() for root in data_roots or [config.parent, Path()]))
