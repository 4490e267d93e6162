"""Stores that earlier versions have written, and their jobs."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from mistify.jobs.job import Job
from mistify_server.store.directory import Store, open_store
from tests.support.paths import REPOSITORY

#: A store of every schema version, written by `make.py` in this directory.
ASSETS: Final = REPOSITORY / "tests" / "mistify_server" / "store" / "sql" / "assets"
VERSIONS: Final = sorted(int(asset.parent.name[1:]) for asset in ASSETS.glob("v*/store.sql.gz"))

#: The version with the job that tests expect.
_DIGITS_JOB_VERSION: Final = 18


def jobs_in(store: Store, most: int = 99) -> list[Job]:
    """Return the jobs of a store with all their goals, newest first."""
    return [part.job for part in store.jobs.page(most, 9_999).jobs]


def restore(version: int, directory: Path) -> None:
    """Restore the database that a schema version has written."""
    with closing(sqlite3.connect(directory / "mistify.db")) as connection:
        dump = ASSETS / f"v{version}" / "store.sql.gz"
        connection.executescript(gzip.decompress(dump.read_bytes()).decode())


def digits_job(directory: Path) -> Job:
    """Return a job with goals of the digits model: some met, some missed, some with branches."""
    restore(_DIGITS_JOB_VERSION, directory)
    with open_store(directory) as store:
        (job,) = jobs_in(store)
    return job


def unfinished(store: Store) -> list[str]:
    """Return the ids of the unfinished jobs of a store, oldest first."""
    return [now.job_id for now in store.leases.situations([])]
