"""A job of tasks on a local server: packages of slices, downloaded by the command line."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import run
from sys import executable
from typing import Final, NamedTuple

from benchmarks.factory.files import NETWORK, TASKS
from benchmarks.harness.checkouts import HERE, serving

#: The `mistify` command.
MISTIFY: Final = Path(executable).with_name("mistify")


class TaskJob(NamedTuple):
    """A job of a running server, whose packages have a factory.

    Attributes:
        id: The id of the job.
        address: The address of its server.
        directory: The directory of the downloaded packages.
    """

    id: str
    address: str
    directory: Path

    def package(self, goal: str) -> Path:
        """Return the downloaded package of a goal."""
        return self.directory / "goals" / goal

    def add(self, goal: str, task: Sequence[str], latency: str) -> None:
        """Add a goal by `mistify add`, which downloads its package."""
        config = self.directory.with_name(f"{goal}.json")
        config.write_text(json.dumps([{"id": goal, "task": task, "adaptation_goal": {"latency": latency}}]))
        mistify("add", self.id, config, "--out", self.directory, "--server", self.address)


@contextmanager
def ended_job(
    files: Path, goal: str, task: Sequence[str], latency: str, settings: Mapping[str, int]
) -> Iterator[TaskJob]:
    """Run a job with one goal on a new server, and yield it once its package is downloaded.

    Args:
        files: The directory of `benchmarks.factory.files`, for config, store and packages as well.
        goal: The id of the goal.
        task: Properties of its task.
        latency: Its limit.
        settings: Settings of the algorithm.
    """
    config = {
        "id": goal,
        "model": NETWORK,
        "dataset": {name: f"{name}.npz" for name in ("train", "validation", "test")} | {"tasks": TASKS},
        "algorithm": {"name": "nnfactory", "config": {**settings, "inside": True}},
        "quantization": "none",
        "task": task,
        "adaptation_goal": {"latency": latency},
    }
    goals, out = files / "goals.json", files / "out"
    goals.write_text(json.dumps([config]))
    with serving(HERE, files / "store", "--slots", "1") as addresses:
        mistify("port", goals, "--out", out, "--server", addresses.grpc)
        job = json.loads((out / "report.json").read_text())["job"]
        yield TaskJob(job, addresses.grpc, out)


def mistify(*words: str | Path) -> None:
    """Run a command of `mistify`.

    Raises:
        RuntimeError: It failed; the message is what it printed.
    """
    done = run([MISTIFY, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"mistify {words[0]}: {done.stdout}{done.stderr}")
