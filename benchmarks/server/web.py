"""Pages and event streams of a server with a full store: response times, CPU time and memory.

`python -m benchmarks.server.web [--quick] [--json FILE] [--against DIR]`

A store gets 201 jobs with 2,000 goals, 1,000 of which belong to one job. They are planned by a real server,
and then get packages, scores and twelve events per goal, as if they had been adapted. Another server then
serves them. The time of a page is measured from the request to the last byte of all its parts (styles,
scripts and the plot library), over one connection and with an empty cache; rendering in the browser is not
included. Then 200 streams of a running job's events are opened, as the job's page does, on a server that has
just started, and the growth of its memory is measured. The job is cancelled at the end, and every stream has
to report that.

With `--against DIR`, a job with twenty goals is run on a server of this checkout and of another one, and
Chromium visits its page on both in turn, with an empty cache: the time of the largest contentful paint, and
the bytes over the wire. That is repeated over a connection of 10 Mbit/s with a delay of 20 ms. The other
checkout has to be one of 5daba0d1, the last commit before the page had a line a goal.

Times are the caller's wall-clock times; the server's CPU time is given as well, which is hardly affected by a
busy machine.

`--quick` uses fewer repetitions, and compares with no other checkout.
"""

import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from itertools import chain
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness.checkouts import HERE, add_against_option
from benchmarks.harness.run import Figures, Target, run, seconds
from benchmarks.server.first_visit import compared_visits
from benchmarks.server.large_jobs import Server, configs
from mistify.costs.budget import FLOPS, latency_axis
from mistify.costs.catalogue import HOST
from mistify.jobs.job import Goal, GoalState, Job, JobState, PackageFile, ProgressUpdate
from mistify_client.rpc.porting import PortingClient
from mistify_server.store.changes import (
    Advanced,
    Change,
    GoalChanged,
    JobChanged,
    ReferenceSaved,
    RootSaved,
    Submission,
)
from mistify_server.store.directory import Store, open_store
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.results import ReferenceResult, SourceResult

#: The commit that the targets compare with: the last one before the page had a line a goal.
BEFORE: Final = "5daba0d1"

TARGETS: Final[dict[str, Target]] = {
    "first_page_ms": {"what": "first page of 201 jobs, ms", "max": 300.0},
    "large_job_ms": {"what": "page of a job with 1,000 goals, ms", "max": 1000.0},
    "streams_mb": {"what": "memory of 200 open streams, MB", "max": 100.0},
    "streams_ended": {"what": "streams (of 200) that report the end of their job", "min": 200.0},
    "paint_ratio": {
        "what": f"largest contentful paint of a job with 20 goals, relative to {BEFORE}",
        "max": 0.5,
        "full_run_only": True,
    },
    "slow_paint_ratio": {
        "what": f"the same at 10 Mbit/s and 20 ms, relative to {BEFORE}",
        "max": 0.5,
        "full_run_only": True,
    },
    "bytes_ratio": {
        "what": f"bytes over the wire for this page, relative to {BEFORE}",
        "max": 0.3,
        "full_run_only": True,
    },
}

LARGE: Final = 1_000
SMALL: Final = 5
SMALL_JOBS: Final = 200
STREAMS: Final = 200

#: Number of requests per page.
_REPETITIONS: Final = 20
_QUICK_REPETITIONS: Final = 5

#: Number of a browser's visits per checkout and connection.
_VISITS: Final = 10

#: Events per goal, in addition to those of its start and its end.
_UPDATES: Final = 10

_FILES: Final = {"manifest.json": 5_000, "serve.tflite": 80_000, "train.tflite": 200_000}
_ASSET: Final = re.compile(r'(?:src|href)="(/static/[^"]+)"')


class WebServer(NamedTuple):
    """A server process, and its HTTP address."""

    process: Server
    host: str
    port: int

    def connection(self) -> HTTPConnection:
        """Return a new connection."""
        return HTTPConnection(self.host, self.port, timeout=60)


@contextmanager
def serving(store: Path) -> Iterator[WebServer]:
    """Run a server on a store in a separate process; unfinished jobs stay unfinished."""
    command = [sys.executable, "-m", "mistify_server.cli", "serve", "--store", str(store), "--no-resume"]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            address, url = (process.stdout.readline().split()[-1] if process.stdout else "" for _ in range(2))
            host, _, port = url.removeprefix("http://").rstrip("/").rpartition(":")
            yield WebServer(Server(address, process.pid, store), host, int(port))
        finally:
            process.terminate()


def fill(directory: Path) -> tuple[str, str]:
    """Fill a store with finished jobs and a running one; return the ids of the large and the running job."""
    with serving(directory) as server, PortingClient(server.process.address) as client:
        large = client.submit(configs(LARGE, "large"), "large").id
        small = client.submit(configs(SMALL, "small"), "small").id
        client.cancel(large)
        client.cancel(small)
    with open_store(directory) as store:
        plans = {job: (store.jobs.job(job), store.jobs.batches(job)[0].plan) for job in (large, small)}
        for job in (large, small):
            store.jobs.remove(job)
        for number in range(SMALL_JOBS - 1):
            _add_job(store, f"small-{number}", *plans[small], ended=True)
        _add_job(store, "running", *plans[small], ended=False)
        _add_job(store, "large", *plans[large], ended=True)
    return "large", "running"


def _add_job(store: Store, job_id: str, like: Job, plan: BatchPlan, *, ended: bool) -> None:
    waiting = tuple(replace(goal, state=GoalState.WAITING, reason="") for goal in like.goals)
    job = Job(job_id, JobState.QUEUED, waiting, time.time_ns() // 1_000_000)
    store.jobs.create(Submission(job, [plan], "[]", None))
    changes: list[Change] = [JobChanged(JobState.RUNNING), RootSaved(0, _source(plan))]
    changes += chain.from_iterable(map(_progress, waiting))
    if ended:
        changes += [GoalChanged(_met(goal, plan)) for goal in waiting]
        changes += [ReferenceSaved(0, _reference()), JobChanged(JobState.DONE)]
    store.jobs.record(job_id, changes, 100.0, {"training": 60.0, "tracing": 20.0, "waiting": 5.0})


def _progress(goal: Goal) -> Iterator[Change]:
    yield GoalChanged(replace(goal, state=GoalState.RUNNING))
    for step in range(_UPDATES):
        yield Advanced(goal.id, ProgressUpdate("adapting", step, _UPDATES))


def _met(goal: Goal, plan: BatchPlan) -> Goal:
    share = goal.spec.budget[FLOPS] / plan.source_costs[FLOPS]
    return replace(
        goal,
        state=GoalState.MET,
        achieved={axis: share * cost for axis, cost in plan.source_costs.items()},
        measured={latency_axis(HOST.name): share},
        accuracy=0.7 + 0.2 * share,
        seconds=12.0,
        steps=500,
        files=tuple(PackageFile(name, size, f"{size:064x}") for name, size in _FILES.items()),
    )


def _source(plan: BatchPlan) -> SourceResult:
    costs = plan.source_costs
    return SourceResult(
        source_costs=costs,
        source_accuracy=0.93,
        teacher="",
        teacher_accuracy=0.94,
        root="",
        root_costs=costs,
        steps=100,
    )


def _reference() -> ReferenceResult:
    return ReferenceResult(accuracy=0.93, tuned_accuracy=0.94, measured={latency_axis(HOST.name): 1.0})


def _load(server: WebServer, path: str) -> None:
    """Load a page with all its parts."""
    connection = server.connection()
    try:
        page = _get(connection, path).decode()
        for asset in dict.fromkeys(_ASSET.findall(page)):
            _get(connection, asset)
    finally:
        connection.close()


def _get(connection: HTTPConnection, path: str) -> bytes:
    connection.request("GET", path, headers={"accept": "text/html, */*"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status}: {content[:200]!r}")
    return content


def _open_stream(server: WebServer, job: str, after: str) -> HTTPResponse:
    connection = server.connection()
    connection.request("GET", f"/v1/jobs/{job}/events?after={after}")
    return connection.getresponse()


def _streams(server: WebServer, job: str) -> tuple[float, int]:
    """Return the server's memory for open streams in MB, and the number of streams that reported the end."""
    with ExitStack() as opened, PortingClient(server.process.address) as client:
        page = _get(server.connection(), f"/jobs/{job}").decode()
        after = page.partition('data-after="')[2].partition('"')[0]
        before = server.process.memory_mb()
        streams = [opened.enter_context(_open_stream(server, job, after)) for _ in range(STREAMS)]
        memory = server.process.memory_mb()
        client.cancel(job)
        ended = sum(b'"cancelled"' in stream.read() for stream in streams)
        return max(memory, server.process.memory_mb()) - before, ended


def measure(options: Namespace) -> Figures:
    """Return all figures; print the table."""
    repetitions = _QUICK_REPETITIONS if options.quick else _REPETITIONS
    table = Table(title="Pages and answers, ms", title_justify="left")
    for column in ("what", "median", "worst", "server's processor"):
        table.add_column(column, justify="left" if column == "what" else "right")
    medians: dict[str, float] = {}

    def note(name: str, server: Server, call: Callable[[], object]) -> None:
        call()  # warm-up
        before = server.processor_seconds()
        taken = seconds(call, repetitions)
        processor = (server.processor_seconds() - before) / repetitions
        medians[name] = 1e3 * median(taken)
        table.add_row(name, *(f"{1e3 * each:.3g}" for each in (median(taken), max(taken), processor)))

    with TemporaryDirectory() as directory:
        large, running = fill(Path(directory))
        with serving(Path(directory)) as server:
            calls: dict[str, Callable[[], object]] = {
                "first page": partial(_load, server, "/"),
                "first page, its HTML alone": partial(_get, server.connection(), "/"),
                "large job": partial(_load, server, f"/jobs/{large}"),
                "large job, its HTML alone": partial(_get, server.connection(), f"/jobs/{large}"),
                "large job, REST": partial(_get, server.connection(), f"/v1/jobs/{large}"),
                "metrics": partial(_get, server.connection(), "/metrics"),
            }
            for name, call in calls.items():
                note(name, server.process, call)
        with serving(Path(directory)) as server:
            memory, ended = _streams(server, running)
    console = Console()
    console.print(table)
    console.print(f"{STREAMS} streams: {memory:.1f} MB")
    named = {re.sub(r"[^a-z]+", "_", name.lower()) + "_ms": figure for name, figure in medians.items()}
    compared = {} if options.quick or options.against is None else _compared(options.against)
    return {**named, "streams_mb": memory, "streams_ended": float(ended), **compared}


def _compared(against: Path) -> Figures:
    """Return the figures of a browser's first visit, and print their table."""
    visits = compared_visits({"this checkout": HERE, str(against): against.resolve()}, _VISITS)
    table = Table(title="First visit of the page of a job with 20 goals", title_justify="left")
    for column in ("checkout", "paint, ms", "paint at 10 Mbit/s, ms", "kB"):
        table.add_column(column, justify="left" if column == "checkout" else "right")
    for name, (fast, slow) in visits.items():
        figures = (fast.paint_ms, slow.paint_ms, fast.transferred / 1e3)
        table.add_row(name, *(f"{figure:,.0f}" for figure in figures))
    Console().print(table)
    ours, theirs = visits.values()
    return {
        "paint_ms": ours.fast.paint_ms,
        "slow_paint_ms": ours.slow.paint_ms,
        "first_visit_kb": ours.fast.transferred / 1e3,
        "paint_ratio": ours.fast.paint_ms / theirs.fast.paint_ms,
        "slow_paint_ratio": ours.slow.paint_ms / theirs.slow.paint_ms,
        "bytes_ratio": ours.fast.transferred / theirs.fast.transferred,
    }


if __name__ == "__main__":
    add_options = partial(add_against_option, commit=BEFORE)
    sys.exit(run("server.web", TARGETS, measure, sys.argv[1:], add_options))
