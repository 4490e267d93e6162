"""The report of a job in an output directory: as data, and as an HTML page."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mistify.errors import ErrorCode, MistifyError
from mistify.files.writing import write_bytes, write_json
from mistify.jobs.job import Job
from mistify.jobs.report import report
from mistify.jobs.tradeoffs import TradeOff, trade_offs
from mistify_client.files import read_text
from mistify_client.porting.goals_csv import goals_csv
from mistify_client.rpc.porting import PortingClient

REPORT = "report.json"
REPORT_PAGE = "report.html"


def fetch_report(client: PortingClient, job: Job, out: Path) -> None:
    """Write the report of a job into a directory.

    Args:
        client: The client of the server that has the job and creates the page.
    """
    write_json(out / REPORT, report(job))
    write_bytes(out / REPORT_PAGE, client.report_page(job.id))


@dataclass(frozen=True)
class ReportParts:
    """The parts of a job's report that `mistify report` writes.

    Attributes:
        report: The content of `report.json`.
        job: The id of the job.
        trade_offs: Accuracy against each cost, for plots.
        goals: Its goals as CSV.
    """

    report: Mapping[str, Any]
    job: str
    trade_offs: list[TradeOff]
    goals: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ReportParts":
        """Return the parts of a report (`mistify.jobs.report.report`)."""
        return cls(data, data["job"], trade_offs(data), goals_csv(data))


def directory_of(path: Path) -> Path:
    """Return the output directory that a path names, itself or by its `report.json`."""
    return path if path.is_dir() else path.parent


def read_report(path: Path) -> ReportParts:
    """Read a job's `report.json`.

    Args:
        path: The file, or its directory.

    Raises:
        MistifyError: NOT_FOUND, it does not exist; INVALID_CONFIG, it cannot be read, or is not a report.
    """
    file = path / REPORT if path.is_dir() else path
    if not file.exists():
        raise MistifyError(
            ErrorCode.NOT_FOUND,
            f"there is no {file}; expected the output directory of mistify port; "
            "to name a job, name its --server as well",
        )
    try:
        return ReportParts.of(json.loads(read_text(file)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"{file} is not a report that this version can read; expected the {REPORT} that "
            "mistify port or fetch writes",
        ) from error
