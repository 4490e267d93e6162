"""The command `mistify report`: a job as an HTML page, as CSV, as pictures of its trade-offs, in MLflow."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import write_bytes
from mistify.jobs.report import report as report_of
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

_MlflowOption = Annotated[
    str | None,
    typer.Option(
        help="MLflow server or database to write the job and its packages into, such as "
        "http://127.0.0.1:5000 or sqlite:///mlflow.db.",
        metavar="URI",
    ),
]
_ExperimentOption = Annotated[
    str | None,
    typer.Option(
        help="Experiment for --mlflow.",
        metavar="NAME",
        show_default=f"${_EXPERIMENT_VARIABLE}, or else {_EXPERIMENT}",
    ),
]


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
    mlflow: _MlflowOption = None,
    experiment: _ExperimentOption = None,
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
        _check_wanted(job, server, html, wanted=wanted)
        if experiment is not None and mlflow is None:
            raise MistifyError(ErrorCode.INVALID_CONFIG, "--experiment needs --mlflow URI")
        draw = None if png is None else _picture_writer(png, console)
        write = None if mlflow is None else _mlflow_writer(mlflow, experiment, console)
        if server is None:
            content = read_report(Path(job))
            damaged = None if write is None else write(saved_job(Path(job)))
        else:
            with PortingClient(server, read_token(token_file), backoff=announcing_backoff(server)) as client:
                content = ReportParts.of(report_of(client.job(job)))
                if html is not None:
                    _write_file(html, "--html", client.report_page(job), "report", console)
                damaged = None if write is None else write(served_job(client, job))
        if csv is not None:
            _write_file(csv, "--csv", content.goals.encode(), "goals", console)
        if draw is not None:
            draw(content)
        if damaged is not None:
            damaged.check()


def _write_file(path: Path, option: str, content: bytes, title: str, console: Console) -> None:
    """Write a file that an option names, and print where it is."""
    output_directory(path.parent, option)
    write_bytes(path, content)
    print_line(console, f"{title}: {path}")


def _check_wanted(job: str, server: str | None, html: Path | None, *, wanted: bool) -> None:
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


def _picture_writer(directory: Path, console: Console) -> Callable[[ReportParts], None]:
    """Return a function that draws the trade-offs of a job, and prints where the pictures are."""
    with _installed("--png", "plots"):
        from mistify_client.porting import pictures  # noqa: PLC0415 (matplotlib is optional)

    def draw(content: ReportParts) -> None:
        if not content.trade_offs:
            message = f"nothing to draw: fewer than two goals of {content.job} have a package (yet)"
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        output_directory(directory, "--png")
        for path in pictures.write_pictures(content.trade_offs, content.job, directory):
            print_line(console, f"picture: {path}")

    return draw


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
