"""Repeated jobs whose server and workers are killed: whether their packages are always the same.

`python -m benchmarks.server.interruptions [--quick] [--json FILE] [--rounds N] [--seed N]`

A real server adapts a small network to a path of two goals. Its packages are the reference for all others,
byte by byte, except for the job's name, times and latencies in manifests. In each of the following rounds,
the same config is submitted, in every other round twice at the same time, and at random moments the server or
one of its workers is killed by SIGKILL. The server has one slot in the first half of the rounds, and two in
the second. Workers that survive a round serve the next one, so that the state of their memory differs between
rounds.

`--quick` has 3 rounds.
"""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import numpy as np
import psutil
from rich.console import Console

from benchmarks.harness.run import Figures, Target, run
from mistify.errors import MistifyError
from mistify.jobs.job import GoalState, Job
from mistify.package.manifest import MANIFEST
from mistify_client.rpc.porting import PortingClient

TARGETS: Final[dict[str, Target]] = {
    "rounds": {"min": 50, "full_run_only": True},
    "kills": {"what": "killed workers and servers", "min": 40, "full_run_only": True},
    "jobs_that_differ": {"what": "jobs with packages that differ from those of an undisturbed job", "max": 0},
    "goals_that_failed": {"max": 0},
}

ROUNDS: Final = 50
_QUICK_ROUNDS: Final = 3

#: Kills per round: usually at least one, and never enough for a task to be given up.
_KILLS: Final = (0, 1, 1, 2)
_PAUSE: Final = 0.2

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

#: Name of the goal and the file -> the file's digest, or the content of a manifest.
Contents: TypeAlias = dict[tuple[str, str], object]


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", help=f"number of rounds, by default {ROUNDS}")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="seed for the times of the kills")


def measure(options: Namespace) -> Figures:
    """Return the number of jobs with packages that differ from those of the first, undisturbed job."""
    rounds = options.rounds or (_QUICK_ROUNDS if options.quick else ROUNDS)
    rng, console = np.random.default_rng(options.seed), Console()
    killed: Counter[str] = Counter()
    differing = failed = 0
    with TemporaryDirectory() as directory:
        model = Path(directory, "model.keras")
        subprocess.run([sys.executable, "-c", _MAKE, model], check=True, capture_output=True)
        server = _Server(Path(directory))
        try:
            config = _config(model)
            start = time.monotonic()
            (first,) = server.finished(server.submitted(config, 1), lambda: None)
            seconds, expected = time.monotonic() - start, server.contents(first)
            for number in range(rounds):
                if number == rounds // 2:
                    server.restart(slots=2)
                jobs = server.submitted(config, 1 + number % 2)
                moments = time.monotonic() + np.sort(rng.uniform(0, seconds, rng.choice(_KILLS)))
                kill = _Kills(server, list(moments), rng, killed)
                done = server.finished(jobs, kill)
                different = [job for job in done if server.contents(job) != expected]
                differing += len(different)
                failed += sum(goal.state is GoalState.FAILED for job in done for goal in job.goals)
                killed_so_far = ", ".join(f"{count} {what}" for what, count in killed.items())
                console.print(f"round {number + 1}: {len(different)} differ; killed so far: {killed_so_far}")
        finally:
            server.stop()
    return {
        "rounds": rounds,
        "kills": killed.total(),
        **{f"kills_of_a_{what}": count for what, count in killed.items()},
        "jobs_that_differ": differing,
        "goals_that_failed": failed,
    }


class _Server:
    """A server on one store, which is restarted after being killed.

    Args:
        directory: Directory for the server's store, and for downloaded files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._slots = 1
        self._start()

    def _start(self) -> None:
        store = self._directory / "store"
        command = [sys.executable, "-m", "mistify_server.cli", "serve", "--store", str(store)]
        command += ["--listen", "127.0.0.1:0", "--http", "off", "--slots", str(self._slots)]
        command += ["--data-root", str(self._directory)]
        with (self._directory / "log").open("a") as log:
            self._process = Popen(command, stdout=PIPE, stderr=log, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        self._client = PortingClient(line.split()[-1])

    def submitted(self, config: str, times: int) -> list[str]:
        """Submit a config `times` times; return the ids of the jobs."""
        return [self._client.submit(config, "").id for _ in range(times)]

    def finished(self, job_ids: list[str], meanwhile: Callable[[], None]) -> list[Job]:
        """Wait for jobs to end, and call `meanwhile` repeatedly."""
        while True:
            with suppress(MistifyError):  # the server may just have been killed
                jobs = [self._client.job(job_id) for job_id in job_ids]
                if all(job.state.ended for job in jobs):
                    return jobs
            time.sleep(_PAUSE)
            meanwhile()

    def contents(self, job: Job) -> Contents:
        """Return the contents of a job's packages."""
        contents: Contents = {}
        for goal in job.goals:
            contents |= {(goal.id, file.name): file.sha256 for file in goal.files if file.name != MANIFEST}
            with TemporaryDirectory(dir=self._directory) as fetched:
                self._client.fetch(job.id, goal.id, Path(fetched), [MANIFEST])
                manifest = json.loads(Path(fetched, MANIFEST).read_text())
            contents[goal.id, MANIFEST] = {
                key: value for key, value in manifest.items() if key not in _VOLATILE
            }
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
        """Restart the server with another number of slots."""
        self.stop()
        self._slots = slots
        self._start()

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait()


class _Kills:
    """Kills of the server or a worker at given times.

    Args:
        moments: Times on the monotonic clock, ascending.
        killed: Counts the kills of each kind.
    """

    def __init__(
        self, server: _Server, moments: list[float], rng: np.random.Generator, killed: Counter[str]
    ) -> None:
        self._server = server
        self._moments = moments
        self._rng = rng
        self._killed = killed

    def __call__(self) -> None:
        """Kill a process if it is time."""
        if not self._moments or time.monotonic() < self._moments[0]:
            return
        self._moments.pop(0)
        if self._rng.random() < 0.5 and self._server.kill_worker(self._rng):
            self._killed["worker"] += 1
        else:
            self._server.kill()
            self._killed["server"] += 1


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
