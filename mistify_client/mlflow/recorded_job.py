"""A job to be written into MLflow, from a server or from an output directory."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mistify.jobs.job import Goal, JobEvent
from mistify.jobs.report import report
from mistify.package.manifest import MANIFEST
from mistify_client.porting.follow import package_directory
from mistify_client.porting.report_files import REPORT_PAGE, directory_of, read_report
from mistify_client.rpc.porting import PortingClient


@dataclass(frozen=True)
class PackageOrigin:
    """The origin of a goal's package.

    Attributes:
        digest: SHA-256 of its `manifest.json`, in hex.
        provided: Returns a context manager that yields its directory.
    """

    digest: str
    provided: Callable[[], AbstractContextManager[Path]]


@dataclass(frozen=True)
class RecordedJob:
    """A job to be written.

    Attributes:
        report: The content of `report.json`.
        packages: Goal -> its package; without goals that have none.
        page: The report as an HTML page; None if there is none.
        config: The config with which the job was submitted; None if it is unknown.
        events: The events of the job so far; empty if they are unknown.
    """

    report: Mapping[str, Any]
    packages: Mapping[str, PackageOrigin]
    page: str | None = None
    config: str | None = None
    events: Sequence[JobEvent] = field(default=())


def served_job(client: PortingClient, job_id: str) -> RecordedJob:
    """Return the current state of a job on a server; packages are downloaded when they are needed.

    Raises:
        MistifyError: NOT_FOUND, there is no such job.
    """
    config = client.config(job_id)
    events = list(client.watch(job_id, so_far=True))
    job = client.job(job_id)  # requested last, so that it is at least as recent as the events
    packages = {
        goal.id: PackageOrigin(_manifest_digest(goal), partial(_downloaded, client, job_id, goal.id))
        for goal in job.goals
        if goal.files
    }
    return RecordedJob(report(job), packages, client.report_page(job_id).decode(), config, events)


def saved_job(path: Path) -> RecordedJob:
    """Return the job of an output directory of `mistify port` or `fetch`.

    Args:
        path: The directory, or its `report.json`.

    Raises:
        MistifyError: NOT_FOUND, there is no report; INVALID_CONFIG, it cannot be read, or is not a report;
            CORRUPT_PACKAGE, the id of a goal in it cannot name a directory.
    """
    content, directory = read_report(path).report, directory_of(path)
    directories = {goal["id"]: package_directory(directory, goal["id"]) for goal in content["goals"]}
    packages = {
        goal_id: PackageOrigin(_digest(package / MANIFEST), partial(_in_place, package))
        for goal_id, package in directories.items()
        if (package / MANIFEST).exists()
    }
    page = directory / REPORT_PAGE
    return RecordedJob(content, packages, page.read_text(encoding="utf-8") if page.exists() else None)


def _manifest_digest(goal: Goal) -> str:
    return next(file.sha256 for file in goal.files if file.name == MANIFEST)


def _in_place(package: Path) -> AbstractContextManager[Path]:
    return nullcontext(package)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def _downloaded(client: PortingClient, job_id: str, goal_id: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix="mistify-") as scratch:
        directory = package_directory(Path(scratch), goal_id)
        client.fetch(job_id, goal_id, directory)
        yield directory
