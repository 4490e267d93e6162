"""The daemon as a process, and an app that uses its package."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from click.testing import Result
from typer.testing import CliRunner

from mistify_client import load
from mistify_client.cli.main import app

MISTIFY = Path(sys.executable).parent / "mistify"


CONFIG = 'interval = "10ms"\n[targets]\nlatency = "60min"\n[policy]\ndwell = "20ms"\n'


class Daemon:
    """A daemon with a log that tests can wait for."""

    def __init__(self, package: Path, config: Path, *options: str) -> None:
        command = [
            str(part) for part in (MISTIFY, "monitor", "--package", package, "--config", config, *options)
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=outside()
        )

    def until(self, **wanted: object) -> dict:
        """Wait for the next entry with these fields, and return it."""
        for entry in self.entries():
            if all(entry.get(key) == value for key, value in wanted.items()):
                return entry
        raise AssertionError(f"ended without {wanted}: {self.process.stderr.read()}")

    def entries(self) -> Iterator[dict]:
        """Yield further entries as they are written."""
        yield from map(json.loads, self.process.stdout)

    def end(self, kind: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(kind)
        self.process.communicate()
        return self.process.returncode


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MISTIFY_")}


def mistify(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(MISTIFY), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=outside(), check=False)


def shown(*arguments: object) -> Result:
    """Run a command that only reads or writes files in this process, and return its result."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "140"})


@contextmanager
def running_app(package: Path):
    """Run inferences continuously, like an app."""
    model, image = load(package, threads=1), np.zeros((1, 4, 4, 1), np.float32)
    ending = threading.Event()

    def infer() -> None:
        while not ending.is_set():
            model(image)

    thread = threading.Thread(target=infer)
    thread.start()
    try:
        yield model
    finally:
        ending.set()
        thread.join()
