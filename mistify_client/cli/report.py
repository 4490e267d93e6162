"""The command `mistify report`: a job as an HTML page, its goals as CSV, and its trade-offs as pictures."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

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
from mistify_client.porting.printing import print_line
from mistify_client.porting.report_files import REPORT_PAGE, ReportParts, read_report
from mistify_client.rpc.porting import PortingClient


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
) -> None:
    """Write the report of a job: as one self-contained page, its goals as CSV, its trade-offs as pictures.

    Pictures need matplotlib, but no browser. Exit code 3: there is no such job, or nothing to draw yet.
    """
    console = Console()
    with reported_errors():
        _check_wanted(job, server, html, wanted=any(each is not None for each in (png, html, csv)))
        pictures = None if png is None else _pictures()
        if server is None:
            content = read_report(Path(job))
        else:
            with PortingClient(server, read_token(token_file), backoff=announcing_backoff(server)) as client:
                content = ReportParts.of(report_of(client.job(job)))
                if html is not None:
                    output_directory(html.parent, "--html")
                    write_bytes(html, client.report_page(job))
                    print_line(console, f"report: {html}")
        if csv is not None:
            output_directory(csv.parent, "--csv")
            write_bytes(csv, content.goals.encode())
            print_line(console, f"goals: {csv}")
        if png is not None and pictures is not None:
            for path in _drawn(pictures, content.trade_offs, content.job, png):
                print_line(console, f"picture: {path}")


def _check_wanted(job: str, server: str | None, html: Path | None, *, wanted: bool) -> None:
    if not wanted:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, "nothing to write; give --png DIR, --html FILE, --csv FILE or several"
        )
    if html is not None and server is None:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"--html needs the --server that has the job; mistify port writes {Path(job) / REPORT_PAGE}",
        )


def _pictures() -> ModuleType:
    try:
        from mistify_client.porting import pictures  # noqa: PLC0415 (matplotlib is optional)
    except ModuleNotFoundError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"--png needs {error.name}, which is not installed; run pip install 'mistify-porting[plots]'",
        ) from error
    return pictures


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
