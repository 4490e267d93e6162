"""Submissions of a known model during a running job: the number per second, compared with another checkout.

`python -m benchmarks.server.submissions [--quick] [--json FILE] [--against DIR]`

A server has one slot, in which a job trains its source. Meanwhile four callers submit one job after another,
as `mistify port --server` does: the client looks for its model and data on the server, and sends its config,
with different limits each time. Model and data are those of the first job. The same is repeated less often
with a server of another checkout (`--against DIR`, of f738c65), whose submissions may take many seconds each.
Finally one submission has a new model.

`--quick` makes 20 submissions, and 2 to the other checkout.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from subprocess import run as run_command
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness.checkouts import HERE, add_against_option, python_of, serving
from benchmarks.harness.run import Figures, Target, run
from mistify.jobs.job import ProgressUpdate
from mistify_client.porting.local_files import local_files
from mistify_client.porting.submission import attach
from mistify_client.rpc.files import FilesClient
from mistify_client.rpc.porting import PortingClient

#: The commit that the targets compare with.
BEFORE: Final = "f738c65"

TARGETS: Final[dict[str, Target]] = {
    "submissions_per_s": {
        "what": "submissions of a known model during a running job, per second",
        "min": 20.0,
    },
    "times_as_many": {
        "what": f"submission rate relative to {BEFORE}",
        "min": 20.0,
        "full_run_only": True,
    },
}
SUBMISSIONS: Final = 200
_QUICK: Final = 20
_OF_OTHER: Final = 8
_QUICK_OF_OTHER: Final = 2
_CALLERS: Final = 4

#: Training steps of each job's source: enough for the first job to keep its slot until the end.
_LONG: Final = 1_000_000

#: Makes two networks in a separate process, so that this one needs no TensorFlow.
_MAKE: Final = """
import sys, keras
layers = keras.layers
for path, width in zip(sys.argv[1:], (8, 12)):
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(width, 3, activation="relu")(inputs)
    x = layers.Dense(10, "softmax", name="digit")(layers.GlobalAveragePooling2D()(x))
    keras.Model(inputs, x).save(path)
"""


class _Side(NamedTuple):
    """The submissions to one server: seconds of each, of all together, and of one with a new model."""

    each: list[float]
    all_together: float
    new: float

    @property
    def per_second(self) -> float:
        return len(self.each) / self.all_together


class _Caller:
    """A client that submits configs to a server, each from its own output directory.

    Args:
        files: Directory of models and data, and for the output directories.
    """

    def __init__(self, address: str, files: Path) -> None:
        self._address = address
        self._files = files

    def submit(self, number: int, model: str = "known.keras") -> tuple[str, float]:
        """Submit a config; return the id of the job and the seconds."""
        text = self._config(number, model)
        start = perf_counter()
        files = local_files(text, [self._files])
        with FilesClient(self._address) as sending:
            files.send(sending, lambda line: None)
        with TemporaryDirectory(dir=self._files) as out, PortingClient(self._address) as client:
            job = attach(client, files.text, Path(out), self._address)
        return job.id, perf_counter() - start

    def begin(self) -> None:
        """Submit a job that runs until the end, and wait until it trains."""
        job_id, _ = self.submit(0)
        with PortingClient(self._address) as client:
            for event in client.watch(job_id):
                if isinstance(event.event, ProgressUpdate) and event.event.step > 0:
                    break

    def _config(self, number: int, model: str) -> str:
        goal = {
            "id": "goal",
            "model": model,
            "dataset": {"train": "data.npz", "test": "data.npz"},
            "algorithm": {"name": "morphnet", "config": {"source_steps": _LONG}},
            "adaptation_goal": {"FLOP": f"{0.5 + 1e-4 * number:.4f}x"},
        }
        return json.dumps([goal])


def measure(options: Namespace) -> Figures:
    """Return the number of submissions per second, and its ratio to that of another checkout."""
    count, of_other = (_QUICK, _QUICK_OF_OTHER) if options.quick else (SUBMISSIONS, _OF_OTHER)
    with TemporaryDirectory() as directory:
        files = Path(directory)
        models = [files / "known.keras", files / "new.keras"]
        run_command([python_of(HERE), "-c", _MAKE, *models], check=True, capture_output=True)
        rng = np.random.default_rng(0)
        images = rng.normal(size=(200, 8, 8, 1)).astype(np.float32)
        np.savez(files / "data.npz", image=images, digit=np.arange(200) % 10)
        sides = {"this checkout": _side(HERE, files, count)}
        if options.against:
            sides[str(options.against)] = _side(options.against.resolve(), files, of_other)
    _show(sides)
    here, *others = sides.values()
    figures = {"submissions_per_s": here.per_second, **_figures("", here)}
    for other in others:
        figures |= _figures("other_", other) | {"times_as_many": here.per_second / other.per_second}
    return figures


def _side(checkout: Path, files: Path, count: int) -> _Side:
    """Return the submissions to a server of a checkout during its running job."""
    with TemporaryDirectory() as store, serving(checkout, Path(store)) as addresses:
        caller = _Caller(addresses.grpc, files)
        caller.begin()
        start = perf_counter()
        with ThreadPoolExecutor(_CALLERS) as callers:
            submitted = list(callers.map(caller.submit, range(1, 1 + count)))
        all_together = perf_counter() - start
        _, new = caller.submit(1 + count, "new.keras")
    return _Side([seconds for _, seconds in submitted], all_together, new)


def _figures(prefix: str, side: _Side) -> dict[str, float]:
    return {
        f"{prefix}median_ms": 1e3 * median(side.each),
        f"{prefix}longest_ms": 1e3 * max(side.each),
        f"{prefix}new_model_s": side.new,
    }


def _show(sides: dict[str, _Side]) -> None:
    table = Table("server of", "submissions", "per second", "median", "longest", "with a new model")
    for name, side in sides.items():
        seconds: Callable[[float], str] = "{:.3f} s".format
        figures = (median(side.each), max(side.each), side.new)
        table.add_row(name, str(len(side.each)), f"{side.per_second:.2f}", *map(seconds, figures))
    Console().print(table)


if __name__ == "__main__":
    add_options = partial(add_against_option, commit=BEFORE)
    sys.exit(run("server.submissions", TARGETS, measure, sys.argv[1:], add_options))
