"""Real jobs whose server and workers are killed at random: whether anything is lost, repeated or different.

`python -m benchmarks.server.interruptions [--quick] [--json FILE] [--seed N]`

A real server adapts a small network to a path of two goals. Its packages are the reference for all others,
byte by byte, except for signatures, and for the job's name, times and measured latencies in manifests. What
differs is printed: files, and fields of manifests. Do not change the code meanwhile: the inspection of the
source depends on it, would be repeated, and measures this machine, for which `achieved` predicts latencies.

In each of the following rounds, the same config is submitted, in every other round twice, and the server or
one of its workers is killed by SIGKILL up to 12 times, each time after a random part of the seconds of an
undisturbed job: during submissions, steps, packaging, or the start of the next server. The client retries, as
`mistify port` does. The server has one slot in half of the rounds, and two in the others. Workers that
survive a round serve the next one, so that the state of their memory differs between rounds.

The rounds end after 200 kills of the server and 100 of workers; with `--quick`, after 4 and 2.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import psutil
from rich.console import Console

from benchmarks.harness.run import Figures, Target, run
from mistify.jobs.job import Goal, GoalState, Job, JobEvent, JobState
from mistify.package.manifest import MANIFEST
from mistify.package.signature import SIGNATURE_FILE
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff, retried

TARGETS: Final[dict[str, Target]] = {
    "kills_of_a_server": {"what": "killed servers", "min": 200, "full_run_only": True},
    "kills_of_a_worker": {"what": "killed workers", "min": 100, "full_run_only": True},
    "jobs_lost": {"what": "acknowledged submissions that the server does not list", "max": 0},
    "jobs_doubled": {"what": "jobs beside those of the acknowledged submissions", "max": 0},
    "jobs_that_repeat": {"what": "jobs with gaps or repetitions in their events or results", "max": 0},
    "jobs_that_differ": {"what": "jobs with packages that differ from those of an undisturbed job", "max": 0},
    "goals_that_failed": {"max": 0},
}

#: Kills of each kind, in a full run and in a quick one.
_KILLS: Final = Counter(server=200, worker=100)
_QUICK_KILLS: Final = Counter(server=4, worker=2)

#: Kills in a round.
_MOST_IN_ROUND: Final = 12

#: Kills of workers after which it is the turn of the server: three attempts at a task may fail.
_MOST_WORKERS: Final = 2

#: The patience of the client: no server is away for long.
_BACKOFF: Final = Backoff(longest=1.0, attempts=1_000)

#: Makes the network in a separate process, so that this one needs no TensorFlow.
_MAKE: Final = """
import sys, keras
layers = keras.layers
keras.utils.set_random_seed(1)
inputs = x = keras.Input((8, 8, 1))
for width in (8, 12):
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, use_bias=False)(x)))
x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
keras.Model(inputs, layers.Dense(10, "softmax")(x)).save(sys.argv[1])
"""
_STEPS: Final = {"source_steps": 40, "adapt_steps": 12, "cuts": 2, "tune_steps": 12}
_GOALS: Final[tuple[dict[str, object], ...]] = (
    {"adaptation_goal": {"FLOP": "0.7x"}},
    {"adaptation_goal": {"FLOP": "0.45x"}, "quantization": "int8"},
)

#: Manifest fields that depend on the job, its time, or measured latencies.
_VOLATILE: Final = ("job", "created", "latency", "measured", "note")

#: Names of the goal and the file -> the file's digest; for manifests, of the goal and a field -> its value.
Contents: TypeAlias = dict[tuple[str, str], object]


class Ended(NamedTuple):
    """A job that has ended, and its events as a watcher saw them."""

    job: Job
    events: Sequence[JobEvent]

    @property
    def repeats(self) -> bool:
        """Whether events or results are missing or repeated."""
        gapless = [event.sequence for event in self.events] == list(range(1, len(self.events) + 1))
        met = [event.goal_id for event in self.events if event.event is GoalState.MET]
        return not gapless or self.events[-1].event is not JobState.DONE or len(met) != len(set(met))


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="seed for the times of the kills")


def measure(options: Namespace) -> Figures:
    """Return how many jobs were lost, have repetitions, or differ from the first, undisturbed one."""
    rng, console = np.random.default_rng(options.seed), Console()
    wanted, killed, counts = _QUICK_KILLS if options.quick else _KILLS, Counter[str](), Counter[str]()
    with TemporaryDirectory() as directory:
        model = Path(directory, "model.keras")
        subprocess.run([sys.executable, "-c", _MAKE, model], check=True, capture_output=True)
        server = _Server(Path(directory))
        try:
            config = _config(model)
            first = server.ended(server.submitted(config, "first"))
            start = time.monotonic()  # later jobs are faster: the model is known, and the worker is there
            second = server.ended(server.submitted(config, "second"))
            seconds, expected = time.monotonic() - start, server.contents(first.job)
            submitted = {first.job.id, second.job.id}
            while not killed >= wanted:
                counts["rounds"] += 1
                server.restart(slots=1 + counts["rounds"] // 2 % 2)
                with _killing(server, seconds, rng, killed, wanted):
                    keys = [f"{counts['rounds']}-{number}" for number in range(1 + counts["rounds"] % 2)]
                    ended = [
                        server.ended(job_id) for job_id in [server.submitted(config, key) for key in keys]
                    ]
                for each in ended:
                    differences = list(differing(server.contents(each.job), expected))
                    for difference in differences:
                        console.print(f"{each.job.id} differs in {difference}", markup=False, soft_wrap=True)
                    counts["differing"] += bool(differences)
                    counts["repeating"] += each.repeats
                    counts["failed"] += sum(goal.state is GoalState.FAILED for goal in each.job.goals)
                submitted.update(each.job.id for each in ended)
                console.print(f"killed so far: {dict(killed)}; counts: {dict(counts)}")
            known = server.jobs()
        finally:
            server.stop()
    return {
        "rounds": counts["rounds"],
        **{f"kills_of_a_{what}": count for what, count in killed.items()},
        "jobs_lost": len(submitted - known),
        "jobs_doubled": len(known - submitted),
        "jobs_that_repeat": counts["repeating"],
        "jobs_that_differ": counts["differing"],
        "goals_that_failed": counts["failed"],
    }


class _Server:
    """A server on one store, which is restarted at the same address after being killed.

    Args:
        directory: Directory for the server's store, and for downloaded files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._slots = 1
        self._address = "127.0.0.1:0"
        self._start()
        self._client = PortingClient(self._address, backoff=_BACKOFF)

    def _start(self) -> None:
        store = self._directory / "store"
        command = [sys.executable, "-m", "mistify_server.cli", "serve", "--store", str(store)]
        command += ["--listen", self._address, "--http", "off", "--slots", str(self._slots)]
        command += ["--data-root", str(self._directory)]
        with (self._directory / "log").open("a") as log:
            self._process = Popen(command, stdout=PIPE, stderr=log, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError((self._directory / "log").read_text()[-2000:])
        self._address = line.split()[-1]

    def submitted(self, config: str, key: str) -> str:
        """Submit a config until the server acknowledges it; return the id of the job."""
        return retried(lambda: self._client.submit(config, key), _BACKOFF).id

    def ended(self, job_id: str) -> Ended:
        """Watch a job until it ends."""
        events = list(self._client.watch(job_id))
        return Ended(self._client.job(job_id), events)

    def jobs(self) -> set[str]:
        """Return the ids of all jobs."""
        return {part.job.id for part in self._client.jobs()}

    def contents(self, job: Job) -> Contents:
        """Return the contents of a job's packages."""
        contents: Contents = {}
        for goal in job.goals:
            with TemporaryDirectory(dir=self._directory) as fetched:
                self._client.fetch(job.id, goal.id, Path(fetched), [MANIFEST])
                contents |= contents_of(goal, json.loads(Path(fetched, MANIFEST).read_text()))
        return contents

    def kill_worker(self, rng: np.random.Generator) -> bool:
        """Kill a worker; return whether there was one."""
        workers = list(_workers_of(self._process.pid))
        if workers:
            with suppress(ProcessLookupError):
                os.kill(int(rng.choice(workers)), signal.SIGKILL)
        return bool(workers)

    def kill(self) -> None:
        """Kill the server, and restart it."""
        self._process.kill()
        self._process.wait()
        self._start()

    def restart(self, slots: int) -> None:
        """Restart the server if it has another number of slots."""
        if slots != self._slots:
            self.stop()
            self._slots = slots
            self._start()

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait()


def contents_of(goal: Goal, manifest: dict[str, object]) -> Contents:
    """Return the contents of a goal's package, as far as every job with the same config should have them.

    Args:
        manifest: The parsed manifest of the package.
    """
    digests = {file.name: file.sha256 for file in goal.files if file.name not in (MANIFEST, SIGNATURE_FILE)}
    steady = {key: value for key, value in manifest.items() if key not in _VOLATILE}
    fields = {f"{MANIFEST}{field}": value for field, value in fields_of(steady)}
    return {(goal.id, name): content for name, content in (digests | fields).items()}


def fields_of(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield the places and values of the numbers, texts and empty parts in parsed JSON."""
    parts = dict(enumerate(value)) if isinstance(value, list) else value
    if not isinstance(parts, dict) or not parts:
        yield place, value
        return
    for key, part in parts.items():
        yield from fields_of(part, f"{place}[{key!r}]")


def differing(contents: Contents, expected: Contents) -> Iterator[str]:
    """Yield in what packages differ from those of the undisturbed job, with both values."""
    for name in sorted(contents.keys() | expected.keys()):
        actual, wanted = contents.get(name, "missing"), expected.get(name, "missing")
        if actual != wanted:
            yield f"{'/'.join(name)}: {actual}; undisturbed: {wanted}"


@contextmanager
def _killing(
    server: _Server, seconds: float, rng: np.random.Generator, killed: Counter[str], wanted: Counter[str]
) -> Iterator[None]:
    """Kill the server or a worker several times within the block.

    Args:
        seconds: The longest pause between two kills.
        killed: Counts the kills of each kind.
        wanted: The kills of each kind in the whole run; the more are missing, the more likely is one.
    """
    over = threading.Event()

    def is_turn_of_worker() -> bool:
        missing = wanted - killed
        return rng.random() * missing.total() < missing["worker"]

    def kill_repeatedly() -> None:
        workers = 0
        until = killed.total() + _MOST_IN_ROUND
        while killed.total() < until and not over.wait(rng.uniform(0, seconds)):
            if workers < _MOST_WORKERS and is_turn_of_worker():
                killed_one = server.kill_worker(rng)  # none is there while the server starts
                workers += killed_one
                killed["worker"] += killed_one
            else:
                workers = 0
                server.kill()
                killed["server"] += 1

    thread = threading.Thread(target=kill_repeatedly)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _workers_of(pid: int) -> Iterator[int]:
    """Yield the workers that a server has started."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):
                if "mistify_server.worker" in child.cmdline():
                    yield child.pid


def _config(model: Path) -> str:
    common = {
        "model": str(model),
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "algorithm": {"name": "morphnet", "config": _STEPS},
    }
    return json.dumps([{"id": f"goal-{n}", **common, **goal} for n, goal in enumerate(_GOALS)])


if __name__ == "__main__":
    sys.exit(run("server.interruptions", TARGETS, measure, sys.argv[1:], _add_options))
