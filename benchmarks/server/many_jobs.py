"""A store of 5,001 jobs: times to list them in the terminal, by HTTP and as a page, and to remove one.

`python -m benchmarks.server.many_jobs [--quick] [--json FILE] [--against DIR]`

The jobs are copies of a finished job of five goals from an earlier server. Each call is repeated, and results
are medians. `--against DIR` names another checkout of Mistify with its own environment in `DIR/.venv`: its
server and command get the same store and the same calls, alternately, and have columns of their own.

`--quick` uses 501 jobs, with the same targets.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness.checkouts import HERE, add_against_option, python_of, serving
from benchmarks.harness.run import Figures, Target, run
from tests.support.stored import VERSIONS, restore

TARGETS: Final[dict[str, Target]] = {
    "command_s": {"what": "5,001 jobs: `mistify jobs`, s", "max": 2.0},
    "page_s": {"what": "5,001 jobs: the jobs page, s", "max": 0.15},
    "list_s": {"what": "5,001 jobs: `GET /v1/jobs`, s", "max": 0.15},
}
JOBS: Final = 5_001
QUICK_JOBS: Final = 501

_REPEATED: Final = 5

#: The copied tables of a job, without its curves and most of its events.
_COPIED: Final = ("batches", "checkpoints", "goals", "files")


class Side(NamedTuple):
    """A running server of one checkout, and the command line of the same checkout."""

    name: str
    python: Path
    address: str
    url: str

    def list_in_terminal(self) -> None:
        """Run `mistify jobs`."""
        command = [str(self.python.parent / "mistify"), "jobs", "--server", self.address]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def get(self, path: str) -> None:
        """Read a route's response."""
        with urllib.request.urlopen(self.url + path) as answer:  # noqa: S310 (our own server)
            answer.read()

    def remove(self, jobs: Iterator[str]) -> None:
        """Remove the next of some jobs."""
        request = urllib.request.Request(f"{self.url}v1/jobs/{next(jobs)}", method="DELETE")  # noqa: S310
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            answer.read()


def make_store(directory: Path, count: int) -> list[str]:
    """Make a store of `count` jobs, with an earlier schema, and return the ids of the copies."""
    directory.mkdir()
    restore(VERSIONS[-1], directory)
    copies = [f"20260101-000000-{number:08x}" for number in range(1, count)]
    with closing(sqlite3.connect(directory / "mistify.db")) as connection, connection:
        (original,) = connection.execute("SELECT id FROM jobs").fetchone()
        for table in ("jobs", *_COPIED, "events"):
            _copy_rows(connection, table, original, copies)
    return copies


def _copy_rows(connection: sqlite3.Connection, table: str, original: str, copies: Sequence[str]) -> None:
    """Give each copy of a job the original's rows in a table."""
    key = "id" if table == "jobs" else "job_id"
    own = {key, "number", "idempotency_key"} if table == "jobs" else {key}
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    columns = ", ".join(f'"{name}"' for name in names if name not in own)
    few = "AND sequence < 4" if table == "events" else ""
    statement = (
        f"INSERT INTO {table} ({key}, {columns}) SELECT ?, {columns} FROM {table} WHERE {key} = ? {few}"  # noqa: S608
    )
    connection.executemany(statement, [(copy, original) for copy in copies])


def measure(options: Namespace) -> Figures:
    """Measure the sides alternately, and print their seconds."""
    count = QUICK_JOBS if options.quick else JOBS
    checkouts = {"this": HERE}
    if options.against is not None:
        checkouts["other"] = options.against.resolve()
    with TemporaryDirectory() as scratch, ExitStack() as running:
        copies = make_store(Path(scratch) / "store", count)
        sides = []
        for name, checkout in checkouts.items():
            store = shutil.copytree(Path(scratch) / "store", Path(scratch) / name)
            addresses = running.enter_context(serving(checkout, store))
            sides.append(Side(name, python_of(checkout), *addresses))
        seconds = _times(sides, copies)
    _print(count, checkouts, seconds)
    own = {f"{call}_s": by_side["this"] for call, by_side in seconds.items()}
    ratios = {
        f"{call}_ratio": by_side["this"] / by_side["other"]
        for call, by_side in seconds.items()
        if "other" in by_side
    }
    return {**own, **ratios}


def _times(sides: Sequence[Side], copies: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the median seconds of each call on each side; the first call of each is a warm-up."""
    doomed = {side.name: iter(copies) for side in sides}
    calls: dict[str, Callable[[Side], None]] = {
        "command": Side.list_in_terminal,
        "page": partial(Side.get, path=""),
        "list": partial(Side.get, path="v1/jobs"),
        "remove": lambda side: side.remove(doomed[side.name]),
    }
    taken: dict[str, dict[str, list[float]]] = {call: {side.name: [] for side in sides} for call in calls}
    for call, of_side in calls.items():
        for _ in range(_REPEATED + 1):
            for side in sides:
                start = perf_counter()
                of_side(side)
                taken[call][side.name].append(perf_counter() - start)
    return {
        call: {name: median(times[1:]) for name, times in by_side.items()} for call, by_side in taken.items()
    }


def _print(count: int, checkouts: dict[str, Path], seconds: dict[str, dict[str, float]]) -> None:
    table = Table(title=f"{count:,} jobs: seconds", title_justify="left")
    table.add_column("call")
    for name in checkouts:
        table.add_column(name, justify="right")
    for call, by_side in seconds.items():
        table.add_row(call, *(f"{by_side[name]:.3f}" for name in checkouts))
    Console().print(table)


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "100")
    sys.exit(run("server.many_jobs", TARGETS, measure, sys.argv[1:], add_against_option))
