"""What stores have."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from mistify.jobs.job import Job
from mistify_server.store.directory import Store, open_store
from tests.support.paths import REPOSITORY

#: Stores that every version has written: `make.py` there.
ASSETS: Final = REPOSITORY / "tests" / "mistify_server" / "store" / "sql" / "assets"
VERSIONS: Final = sorted(int(asset.parent.name[1:]) for asset in ASSETS.glob("v*/store.sql.gz"))

#: The one whose figures tests expect of its job.
_OF_DIGITS_JOB: Final = 18


def jobs_in(store: Store, most: int = 99) -> list[Job]:
    """The jobs of a store with all their goals, the newest first."""
    return [part.job for part in store.jobs.page(most, 9_999)[0]]


def restore(version: int, directory: Path) -> None:
    """Write the database of a store as a version has left it."""
    with closing(sqlite3.connect(directory / "mistify.db")) as connection:
        dump = ASSETS / f"v{version}" / "store.sql.gz"
        connection.executescript(gzip.decompress(dump.read_bytes()).decode())


def digits_job(directory: Path) -> Job:
    """A job of one of them: goals of the digits model that are met, missed, and with branches."""
    restore(_OF_DIGITS_JOB, directory)
    with open_store(directory) as store:
        (job,) = jobs_in(store)
    return job
