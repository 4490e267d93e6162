"""A server under load over TLS during a job: submissions, watchers, reconnections, downloads and reports.

`python -m benchmarks.server.load [--quick] [--json FILE] [--database URL]`

A server has one worker, in which a job trains its source. Its clients are in other processes on the same
machine, which has two cores: what they and the job take is not left for the server. Each client has a
connection of its own with TLS and sends a token, which the server looks up in its database.

- Downloads: four devices download a package over gRPC, one time after the other, and then four browsers over
  HTTP.
- Reports: every device reports every 30 seconds, over a new connection each time, as the monitor does. Times
  count from the moment at which a report is due.
- Watchers: clients watch the running job; the lag of an event is its age when it arrives.
- Storm: other clients watch the job when the server is killed. It is started again, and each client connects
  again by itself, until it has an event of the new server. The time counts from the kill.
- Mix: watchers, reports and downloads at moderate rates, and jobs that are submitted, cancelled and removed.
  The growth of the server's memory is that from the first to the last tenth of the time, after a warm-up.
- Submissions: callers submit jobs of the known model, one after the other. A response means that the job is
  on the disk.

`--database URL` keeps the server's database in PostgreSQL: an empty database (`createdb`).

`--quick` has a tenth to a hundredth of the clients and seconds, with the same targets; its figures only show
that everything works.
"""

import json
import math
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from select import select
from statistics import median
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, run
from benchmarks.server.large_jobs import processor_seconds
from benchmarks.server.load_clients import Settings
from benchmarks.server.load_server import LoadedServer

TARGETS: Final[dict[str, Target]] = {
    "submissions_per_s": {"what": "durable submissions, per second", "min": 500.0},
    "submission_p99_ms": {"what": "99th percentile of a submission, ms", "max": 250.0},
    "watchers": {"what": "watchers on connections of their own", "min": 3_000.0, "full_run_only": True},
    "event_lag_p99_ms": {"what": "99th percentile of the lag of events, ms", "max": 1_000.0},
    "watchers_memory_mb": {"what": "server's memory with these watchers, MB", "max": 512.0},
    "storm_s": {"what": "killed server: time until all clients have an event again, s", "max": 30.0},
    "download_mb_per_s": {"what": "downloads over gRPC, MB/s", "min": 100.0},
    "http_download_mb_per_s": {"what": "downloads over HTTP, MB/s", "min": 100.0},
    "reports_per_s": {
        "what": "reports of 10,000 devices, each every 30 s, per second",
        "min": 10_000 / 30,
        "full_run_only": True,
    },
    "report_p99_ms": {"what": "99th percentile of a report, ms", "max": 1_000.0},
    "memory_growth": {"what": "growth of the server's memory in ten minutes of the mix", "max": 0.05},
}


class Size(NamedTuple):
    """Numbers of clients, and seconds of measurement."""

    watchers: int
    storm: int
    devices: int
    report_seconds: float
    seconds: float
    mix_seconds: float
    package_bytes: int


_FULL: Final = Size(3_000, 1_000, 10_000, 60.0, 20.0, 600.0, 64_000_000)
_QUICK: Final = Size(100, 50, 300, 5.0, 3.0, 15.0, 8_000_000)

#: Figures that a quick run cannot have, because they are numbers of clients.
_OF_SIZE: Final = ("watchers", "reports_per_s")

_PERIOD: Final = 30.0
_CALLERS: Final = 32
_DOWNLOADS: Final = 4

#: How long clients may take to have an event, in seconds; those without one count as missing.
_CONNECTING: Final = 120.0
_PAUSE: Final = 0.2

#: How long a process of clients may take to say what it has measured, in seconds.
_ANSWERING: Final = 60.0


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--database", metavar="URL", help="an empty database in PostgreSQL")


class ClientProcess:
    """A process of clients."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    def measured(self, since: float) -> dict[str, Any]:
        """Return what the clients have measured since a time, in seconds since 1970."""
        if self._process.stdin is None or self._process.stdout is None:
            raise TypeError("the process has no pipes")
        self._process.stdin.write(f"{1e3 * since}\n")
        self._process.stdin.flush()
        if not select([self._process.stdout], (), (), _ANSWERING)[0]:
            raise TimeoutError(f"the clients have not answered for {_ANSWERING:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the clients have ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def processor_seconds(self) -> float:
        """Return the CPU time of all clients."""
        return processor_seconds(self._process.pid)

    def over(self, seconds: float) -> dict[str, Any]:
        """Return what the clients measure in the next seconds."""
        since = time.time()
        time.sleep(seconds)
        return self.measured(since)


@contextmanager
def clients(role: str, settings: Settings) -> Iterator[ClientProcess]:
    """Run clients of a role in a process of their own within the block."""
    command = [sys.executable, "-m", "benchmarks.server.load_clients", role]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            if process.stdin is not None:
                process.stdin.write(json.dumps(asdict(settings)) + "\n")
                process.stdin.flush()
            yield ClientProcess(process)
        finally:
            process.kill()


class Load:
    """The measurements of a server, which print their figures."""

    def __init__(self, server: LoadedServer, size: Size) -> None:
        self._server = server
        self._size = size
        self._table = Table(
            "what", "number", "per second", "median", "99th percentile", "longest", "failures"
        )

    def downloads(self) -> Figures:
        """Return the MB/s of downloads."""
        settings = self._server.settings(_DOWNLOADS, package=True)
        figures: dict[str, float] = {}
        for name, role in (("download", "download"), ("http_download", "http-download")):
            with clients(role, settings) as downloading:
                downloading.over(1.0)
                measured = downloading.over(self._size.seconds / 2)
            figures[f"{name}_mb_per_s"] = measured["mb_per_s"]
            self._note(f"{role}s, {measured['mb_per_s']:.0f} MB/s", measured)
        return figures

    def reports(self) -> Figures:
        """Return the rate of reports and their 99th percentile."""
        with clients("report", self._server.settings(self._size.devices, _PERIOD)) as devices:
            devices.over(self._size.report_seconds / 4)
            measured = devices.over(self._size.report_seconds)
        self._note("reports", measured)
        return {"reports_per_s": measured["per_s"], "report_p99_ms": measured["p99_ms"]}

    def watchers(self) -> Figures:
        """Return the lag of events, and the server's memory with all watchers."""
        with clients("watch", self._server.settings(self._size.watchers)) as watching:
            self._wait_for_all(watching, time.time())
            measured = watching.over(self._size.seconds)
            memory = self._server.process.memory_mb()
        self._note(f"events of watchers, {memory:.0f} MB", measured)
        return {
            "watchers": self._size.watchers - measured["behind"],
            "event_lag_p99_ms": measured["p99_ms"],
            "watchers_memory_mb": memory,
        }

    def storm(self) -> Figures:
        """Return the seconds from the kill of the server until all clients have an event of the next one."""
        with clients("watch", self._server.settings(self._size.storm)) as watching:
            self._wait_for_all(watching, time.time())
            killed = time.time()
            self._server.restart()
            ready = time.time()
            measured = self._wait_for_all(watching, killed)
            healed = math.inf if measured["behind"] else time.time()
        self._note(f"events after a restart of {ready - killed:.1f} s", measured)
        return {"storm_s": healed - killed, "restart_s": ready - killed}

    def mix(self) -> Figures:
        """Return the growth of the server's memory under a mix of all clients."""
        size, server = self._size, self._server
        parts: Mapping[str, Settings] = {
            "watch": server.settings(size.watchers // 30),
            "report": server.settings(size.devices // 20, _PERIOD),
            "download": server.settings(1, 2.0, package=True),
            "http-download": server.settings(1, 2.0, package=True),
            "submit": server.settings(2, 1.0),
        }
        with ExitStack() as running:
            mixed = {role: running.enter_context(clients(role, each)) for role, each in parts.items()}
            time.sleep(size.mix_seconds / 10)
            since, memory = time.time(), list[float]()
            while time.time() < since + size.mix_seconds:
                memory.append(server.process.memory_mb())
                time.sleep(1.0)
            for role, each in mixed.items():
                self._note(f"mix: {role}", each.measured(since))
        tenth = max(1, len(memory) // 10)
        before, after = median(memory[:tenth]), median(memory[-tenth:])
        return {"memory_growth": after / before - 1, "mix_memory_mb": after}

    def submissions(self) -> Figures:
        """Return the rate of submissions, their 99th percentile, and the processor time of either side."""
        with clients("submit", self._server.settings(_CALLERS)) as callers:
            callers.over(2.0)
            before = self._server.process.processor_seconds(), callers.processor_seconds()
            measured = callers.over(self._size.seconds)
            after = self._server.process.processor_seconds(), callers.processor_seconds()
        self._note("submissions", measured)
        used, by_callers = (
            1e3 * (end - start) / max(1, measured["count"]) for start, end in zip(before, after, strict=True)
        )
        return {
            "submissions_per_s": measured["per_s"],
            "submission_p99_ms": measured["p99_ms"],
            "submission_processor_ms": used,
            "submission_caller_processor_ms": by_callers,
        }

    def print(self) -> None:
        """Print a table of all measurements."""
        Console().print(self._table)

    def _wait_for_all(self, watching: ClientProcess, since: float) -> dict[str, Any]:
        """Wait until all watchers have an event that occurred since a time, and return what they measured."""
        while (measured := watching.measured(since))["behind"] and time.time() < since + _CONNECTING:
            time.sleep(_PAUSE)
        return measured

    def _note(self, what: str, measured: Mapping[str, Any]) -> None:
        times = (f"{measured[name]:,.0f} ms" for name in ("p50_ms", "p99_ms", "longest_ms"))
        failures = f"{measured['failures']:,} {measured['failure'][:60]}"
        self._table.add_row(what, f"{measured['count']:,}", f"{measured['per_s']:,.1f}", *times, failures)


def _measured(phase: Callable[[], Figures]) -> Figures:
    """Return the figures of a phase, and none if it fails, so that the others can still be measured."""
    begun = time.monotonic()
    print(f"{phase.__name__} ...", file=sys.stderr, flush=True)
    try:
        return phase()
    except (OSError, RuntimeError) as error:
        print(f"{phase.__name__} failed: {error}", file=sys.stderr, flush=True)
        return {}
    finally:
        print(f"{phase.__name__}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


def measure(options: Namespace) -> Figures:
    """Return all figures, and print them."""
    size = _QUICK if options.quick else _FULL
    with TemporaryDirectory() as directory:
        server = LoadedServer(Path(directory), size.package_bytes)
        load = Load(server, size)
        try:
            server.begin(options.database)
            # Submissions are the last, because they leave thousands of jobs.
            phases = (load.downloads, load.reports, load.watchers, load.storm, load.mix, load.submissions)
            figures: dict[str, float] = {}
            for phase in phases:
                figures |= _measured(phase)
        finally:
            load.print()
            server.stop()
    return {name: figure for name, figure in figures.items() if not (options.quick and name in _OF_SIZE)}


if __name__ == "__main__":
    sys.exit(run("server.load", TARGETS, measure, sys.argv[1:], _add_options))
