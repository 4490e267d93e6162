"""A job of 10,000 goals: times of its calls and of concurrent ones, memory, and disk space before and after.

`python -m benchmarks.server.large_jobs [--quick] [--json FILE]`

A real server gets 10,000 goals of the digits model, with limits on two axes, so that the goal tree is not a
chain. The worker that inspects the model is already running. Then all jobs are listed, the job is watched and
read while its source is trained, 1,000 goals are added, and the job is cancelled, cancelled again, and
removed. Meanwhile another caller with an open connection repeatedly requests a job of one goal: the longest
response time shows whether others can use the server. Times are the caller's wall-clock seconds; the server's
CPU time is given as well, which is hardly affected by a busy machine.

`--quick` uses 1,000 goals and adds 100.
"""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from threading import Event
from typing import Final, NamedTuple

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, median_seconds, run
from mistify.jobs.job import JobEvent
from mistify_client.rpc.porting import PortingClient

TARGETS: Final[dict[str, Target]] = {
    "submit_s": {"what": "10,000 goals: submitting, s", "max": 10.0},
    "jobs_ms": {"what": "10,000 goals: listing the jobs, ms", "max": 200.0},
    "add_s": {"what": "10,000 goals: adding 1,000, s", "max": 5.0},
    "cancel_s": {"what": "10,000 goals: cancelling, s", "max": 2.0},
    "other_caller_s": {"what": "longest wait of a concurrent caller, s", "max": 1.0},
    "memory_growth_mb": {"what": "growth of the server's memory, MB", "max": 50.0},
    "disk_left": {"what": "share of the database growth left after removal", "max": 0.1},
}
GOALS: Final = 10_000
QUICK_GOALS: Final = 1_000

#: Number of added goals, as a share of the goals.
_ADDED: Final = 0.1

#: Number of times that all jobs are listed, and the job is read: first to warm up, then to measure memory
#: growth.
_LISTED: Final = 5
_READ: Final = 5
_WATCHED_EVENTS: Final = 10
_PAUSE: Final = 0.02
_STEPS: Final = {"source_steps": 50_000, "adapt_steps": 10, "tune_steps": 10}


def processor_seconds(pid: int) -> float:
    """Return the CPU time of a process, without those that it has started."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


class Server(NamedTuple):
    """A server process and its store."""

    address: str
    pid: int
    store: Path

    def memory_mb(self) -> float:
        """Return the memory in use."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1e3

    def processor_seconds(self) -> float:
        """Return the server's CPU time, without its workers."""
        return processor_seconds(self.pid)

    def disk_mb(self) -> float:
        """Return the size of its database."""
        return sum(file.stat().st_size for file in self.store.glob("mistify.db*")) / 1e6


@contextmanager
def serving(store: Path) -> Iterator[Server]:
    """Run a server on a store in a separate process."""
    command = [sys.executable, "-m", "mistify_server.cli", "serve", "--store", str(store)]
    command += ["--max-goals", str(2 * GOALS), "--listen", "127.0.0.1:0"]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1] if process.stdout else ""
            yield Server(address, process.pid, store)
        finally:
            process.terminate()


def configs(count: int, name: str) -> str:
    """Return a config of `count` goals with limits on two axes."""
    rng = np.random.default_rng(list(name.encode()))
    goals = [
        {
            "id": f"{name}-{number}",
            "model": "digits-resnet",
            "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
            "algorithm": {"name": "auto", "config": _STEPS},
            "adaptation_goal": {
                "FLOP": f"{rng.uniform(0.1, 1):.6f}x",
                "num_of_params": f"{rng.uniform(0.1, 1):.6f}x",
            },
        }
        for number in range(count)
    ]
    return json.dumps(goals)


class CallTimer:
    """Times calls while another caller repeatedly requests a small job."""

    def __init__(self, server: Server, small_job: str) -> None:
        self._server = server
        self._small_job = small_job
        self.table = Table(title="Calls", title_justify="left")
        for column in ("call", "s", "server's processor, s", "longest other call, s", "memory, MB"):
            self.table.add_column(column, justify="left" if column == "call" else "right")
        self.longest_other = 0.0

    def time(self, name: str, call: Callable[[], object], repetitions: int = 1) -> float:
        """Return the median seconds of a call, and record them."""
        done = Event()
        with PortingClient(self._server.address) as other, ThreadPoolExecutor(1) as pool:
            other.job(self._small_job)  # connects
            before = self._server.processor_seconds()
            waits = pool.submit(self._ask, other, done)
            try:
                seconds = median_seconds(call, repetitions)
            finally:
                done.set()
            longest = max(waits.result())
        processor = (self._server.processor_seconds() - before) / repetitions
        self.longest_other = max(self.longest_other, longest)
        figures = [seconds, processor, longest, self._server.memory_mb()]
        self.table.add_row(name, *(f"{figure:.3g}" for figure in figures))
        return seconds

    def _ask(self, client: PortingClient, done: Event) -> list[float]:
        """Return the seconds of each response; the last request is sent after `done` is set."""
        waits: list[float] = []
        ended = False
        while not ended:
            ended = done.wait(_PAUSE)
            started = time.perf_counter()
            client.job(self._small_job)
            waits.append(time.perf_counter() - started)
        return waits


def _watch(client: PortingClient, job: str) -> list[JobEvent]:
    return list(islice(client.watch(job), _WATCHED_EVENTS))


def _read(client: PortingClient, job: str) -> None:
    _watch(client, job)
    client.job(job)


def measure(options: Namespace) -> Figures:
    """Return all figures; print the table."""
    count = QUICK_GOALS if options.quick else GOALS
    more = configs(int(_ADDED * count), "added")
    with (
        TemporaryDirectory() as directory,
        serving(Path(directory)) as server,
        PortingClient(server.address) as client,
    ):
        small = client.submit(configs(1, "small"), "small").id
        client.cancel(small)
        client.plan(configs(1, "warm"))  # cancelling has ended the worker
        timer, empty = CallTimer(server, small), server.disk_mb()
        text = configs(count, "goal")
        submit = timer.time("submit", lambda: client.submit(text, "large"))
        job = client.submit(text, "large").id
        listed = timer.time("jobs", lambda: list(client.jobs()), _LISTED)
        timer.time("watch", lambda: _watch(client, job))
        timer.time("read the job", lambda: client.job(job))
        memory = server.memory_mb()
        timer.time("read it again", lambda: _read(client, job), _READ)
        growth = server.memory_mb() - memory
        add = timer.time("add", lambda: client.add_goals(job, more))
        cancel = timer.time("cancel", lambda: client.cancel(job))
        again = timer.time("cancel again", lambda: client.cancel(job))
        full = server.disk_mb()
        remove = timer.time("remove", lambda: client.remove(job))
        left = server.disk_mb()
    Console().print(timer.table)
    Console().print(f"database: {empty:.1f} MB, with the job {full:.1f} MB, without it {left:.1f} MB")
    return {
        "submit_s": submit,
        "jobs_ms": 1e3 * listed,
        "add_s": add,
        "cancel_s": cancel,
        "cancel_again_s": again,
        "remove_s": remove,
        "other_caller_s": timer.longest_other,
        "memory_growth_mb": growth,
        "disk_mb": full,
        "disk_left": max(0.0, left - empty) / (full - empty),
    }


if __name__ == "__main__":
    sys.exit(run("server.large_jobs", TARGETS, measure, sys.argv[1:]))
