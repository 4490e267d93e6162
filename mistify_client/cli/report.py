"""The command `mistify report`: a job as an HTML page, as CSV, as pictures of its trade-offs, in MLflow."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Final

import typer
from rich.console import Console

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import write_bytes
from mistify.jobs.report import report as report_of
from mistify.jobs.tradeoffs import TradeOff
from mistify.tokens import read_token
from mistify_client.cli.errors import reported_errors
from mistify_client.cli.options import OptionalServer, TokenFile
from mistify_client.cli.serving import announcing_backoff
from mistify_client.files import output_directory
from mistify_client.mlflow.recorded_job import RecordedJob, saved_job, served_job
from mistify_client.porting.damaged import DamagedPackages
from mistify_client.porting.printing import print_line
from mistify_client.porting.report_files import REPORT_PAGE, ReportParts, read_report
from mistify_client.rpc.porting import PortingClient

#: The experiment of jobs in MLflow, unless MLflow's own variable names one.
_EXPERIMENT: Final = "mistify"
_EXPERIMENT_VARIABLE: Final = "MLFLOW_EXPERIMENT_NAME"

#: Settings of MLflow for a command: no reports of its usage to others, no lines and progress bars between
#: those of the command, and an error for an unreachable server after seconds instead of minutes.
_MLFLOW_DEFAULTS: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def register(app: typer.Typer) -> None:
    """Add the command to a command line."""
    app.command()(report)


def report(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A job of the --server; without one, its output directory.")
    ],
    *,
    server: OptionalServer = None,
    token_file: TokenFile = None,
    png: Annotated[
        Path | None, typer.Option(help="Directory for a picture of each trade-off.", metavar="DIR")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="File for the whole report as an HTML page.", metavar="FILE")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="File for the goals and their figures as a table.", metavar="FILE")
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(
            help="MLflow server or database to write the job and its packages into, such as "
            "http://127.0.0.1:5000 or sqlite:///mlflow.db.",
            metavar="URI",
        ),
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option(
            help="Experiment for --mlflow.",
            metavar="NAME",
            show_default=f"${_EXPERIMENT_VARIABLE}, or else {_EXPERIMENT}",
        ),
    ] = None,
) -> None:
    """Write the report of a job: as one self-contained page, its goals as CSV, its trade-offs as pictures.

    With --mlflow, the job becomes a run of MLflow with a nested run for each goal, and each package a model.
    Repeat this to update them.

    Pictures need matplotlib, but no browser. Exit code 3: there is no such job, or nothing to draw yet.
    Exit code 10: a package is damaged on the server; all others were written into MLflow.
    """
    console = Console()
    with reported_errors():
        wanted = any(each is not None for each in (png, html, csv, mlflow))
        _check_options(
            job, server, html, wanted=wanted, lacks_mlflow=experiment is not None and mlflow is None
        )
        pictures = None if png is None else _pictures()
        write = None if mlflow is None else _mlflow_writer(mlflow, experiment, console)
        damaged = None
        if server is None:
            content = read_report(Path(job))
            if write is not None:
                damaged = write(saved_job(Path(job)))
        else:
            with PortingClient(server, read_token(token_file), backoff=announcing_backoff(server)) as client:
                content = ReportParts.of(report_of(client.job(job)))
                damaged = _write_served(client, job, html, write, console)
        if csv is not None:
            _write_goals(content, csv, console)
        if png is not None and pictures is not None:
            for path in _drawn(pictures, content.trade_offs, content.job, png):
                print_line(console, f"picture: {path}")
        if damaged is not None:
            damaged.check()


def _write_served(
    client: PortingClient,
    job: str,
    html: Path | None,
    write: Callable[[RecordedJob], DamagedPackages] | None,
    console: Console,
) -> DamagedPackages | None:
    """Write the page of a job that a server has, and the job into MLflow, as far as they are wanted."""
    if html is not None:
        output_directory(html.parent, "--html")
        write_bytes(html, client.report_page(job))
        print_line(console, f"report: {html}")
    return None if write is None else write(served_job(client, job))


def _write_goals(content: ReportParts, csv: Path, console: Console) -> None:
    output_directory(csv.parent, "--csv")
    write_bytes(csv, content.goals.encode())
    print_line(console, f"goals: {csv}")


def _check_options(
    job: str, server: str | None, html: Path | None, *, wanted: bool, lacks_mlflow: bool
) -> None:
    if not wanted:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            "nothing to write; give --png DIR, --html FILE, --csv FILE, --mlflow URI or several",
        )
    if html is not None and server is None:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"--html needs the --server that has the job; mistify port writes {Path(job) / REPORT_PAGE}",
        )
    if lacks_mlflow:
        raise MistifyError(ErrorCode.INVALID_CONFIG, "--experiment needs --mlflow URI")


def _pictures() -> ModuleType:
    with _installed("--png", "plots"):
        from mistify_client.porting import pictures  # noqa: PLC0415 (matplotlib is optional)
    return pictures


def _mlflow_writer(
    uri: str, experiment: str | None, console: Console
) -> Callable[[RecordedJob], DamagedPackages]:
    """Return a function that writes a job into MLflow, prints where, and returns the damaged packages."""
    for variable, value in _MLFLOW_DEFAULTS.items():
        os.environ.setdefault(variable, value)
    with _installed("--mlflow", "mlflow"):
        from mistify_client.mlflow import runs  # noqa: PLC0415 (MLflow is optional)
    name = experiment or os.environ.get(_EXPERIMENT_VARIABLE) or _EXPERIMENT

    def write(job: RecordedJob) -> DamagedPackages:
        place, damaged = runs.write_job(
            job, uri, name, lambda goal_id, model: print_line(console, f"model of {goal_id}: {model}")
        )
        print_line(console, f"MLflow: {place}")
        return damaged

    return write


@contextmanager
def _installed(option: str, extra: str) -> Iterator[None]:
    """Say what to install if the block imports a module that is missing.

    Args:
        option: The option that needs the module.
        extra: The extra of this package that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"{option} needs {error.name}, which is not installed; run "
            f"pip install 'mistify-porting[{extra}]'",
        ) from error


def _drawn(pictures: ModuleType, along_costs: Sequence[TradeOff], job: str, directory: Path) -> list[Path]:
    """Draw trade-offs, and return the paths of the pictures.

    Raises:
        MistifyError: NOT_FOUND, there is nothing to draw.
    """
    if not along_costs:
        raise MistifyError(
            ErrorCode.NOT_FOUND, f"nothing to draw: fewer than two goals of {job} have a package (yet)"
        )
    output_directory(directory, "--png")
    paths: list[Path] = pictures.write_pictures(along_costs, job, directory)
    return paths
