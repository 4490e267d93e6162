"""The time and memory of slices for tasks, on a device and from a server (NN-Factory 3.5, 5.3).

`python -m benchmarks.factory.speed [--quick] [--json FILE]`

A server trains a supernet for questions about four digits (`benchmarks/factory/files.py`), in few steps:
costs do not depend on accuracy. Its package contains the supernet.

- `slice_speedup`: the processor time of an edge of `morphnet` with 900 training steps for one question,
  including its package, relative to that of making a slice in a process without TensorFlow: the answers of
  the assembler, the choice, the cut and the file.
- `customize_seconds`: the command `mistify customize` from start to end, where slices of the package have
  been measured before (`first_customize_seconds`: where they have not).
- `add_seconds`: the command `mistify add` for another question, from start to the downloaded package.
- `customize_memory`: the peak memory of customizing a package with a supernet of 39 MB to a slice of half of
  the units, relative to that of loading this slice and running it once; both in separate processes, less the
  memory of a process that does neither. `first_customize_memory`: where slices have not been measured before,
  relative to that of loading the whole network, which is one of them. `small_customize_memory`: with the
  package of the server, without a target, because most of it does not depend on the network.
- `within_limit`: the share of slices within their limits, for 100 random questions with a limit of latency,
  memory or both, between the smallest slice and the whole network. Latency is measured again after a slice is
  installed. `unexpected_errors` counts those requests without a slice, and `refused` is the share of requests
  for less than the smallest slice that end with an error that says so.
- `predictor_error`: the median error in per cent of the device's predictor, which measures ten slices, for
  other random slices; `regression_error_50` and so on: that of a regression on the gates of so many slices,
  as in the paper.

`--quick` has few steps, requests and slices, and no `slice_speedup`.
"""

import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

import numpy as np
from rich.console import Console

from benchmarks.factory import files
from benchmarks.factory.digits import Extent
from benchmarks.factory.jobs import TaskJob, ended_job, mistify
from benchmarks.factory.packages import write_package
from benchmarks.factory.prediction import measured_slices, regression_error
from benchmarks.factory.requests import Outcome, Requests
from benchmarks.harness.run import Figures, Target, median_seconds, run_with_one_thread
from benchmarks.harness.worker import Porting
from mistify.costs.quantization import Quantization
from mistify.scenarios.space import TaskSpace
from mistify_client.runtime.versions import state_directory
from mistify_client.slicing.customizing import factory_of
from mistify_client.slicing.latencies import slice_latencies
from mistify_server.tasks.sources import DataSource, ModelSource

TARGETS: Final[dict[str, Target]] = {
    "slice_speedup": {
        "what": "processor time of a `morphnet` edge of 900 steps with its package relative to a slice",
        "min": 1000.0,
        "full_run_only": True,
    },
    "customize_seconds": {"what": "`mistify customize`, the second time on a device, s", "max": 2.5},
    "add_seconds": {"what": "`mistify add` for another task until its package is downloaded, s", "max": 3.0},
    "customize_memory": {"what": "memory of customizing relative to loading the slice", "max": 1.5},
    "first_customize_memory": {
        "what": "memory of customizing the first time relative to loading the whole network",
        "max": 1.5,
    },
    "within_limit": {"what": "slices within random limits of latency and memory, share", "min": 1.0},
    "unexpected_errors": {"what": "errors of requests with possible limits", "max": 0},
    "refused": {"what": "requests for less than the smallest slice with a clear error, share", "min": 1.0},
    "predictor_error": {"what": "error of the latency predicted from ten slices, median, %", "max": 5.0},
}


@dataclass(frozen=True)
class _Amount:
    """How much is done.

    Attributes:
        data: The size of the data.
        settings: Training steps of the supernet.
        edge_steps: Training steps of the edge of `morphnet`.
        repetitions: Number of times that commands are timed and memory is measured.
        requests: Random requests with possible limits; a tenth as many are impossible.
        sampled: Slices of each regression on gates.
        tested: Slices of which latencies are predicted.
        seconds: Time of measuring these and the sampled ones.
    """

    data: Extent
    settings: Mapping[str, int]
    edge_steps: int
    repetitions: int
    requests: int
    sampled: tuple[int, ...]
    tested: int
    seconds: float


_FULL: Final = _Amount(
    data=Extent(train=6_000, validated=1_000, tested=20),
    settings={"answer_steps": 400, "gate_steps": 400},
    edge_steps=900,
    repetitions=5,
    requests=100,
    sampled=(50, 200, 1000),
    tested=100,
    seconds=120,
)
_QUICK: Final = _Amount(
    data=Extent(train=600, validated=200, tested=4, extra=40),
    settings={"answer_steps": 16, "gate_steps": 16},
    edge_steps=20,
    repetitions=2,
    requests=10,
    sampled=(20,),
    tested=20,
    seconds=6,
)

#: The task and the limit of the first goal, and of the edge of `morphnet`.
_TASK: Final = ("exactly:2", "odd")
_LATENCY: Final = "0.5x"
_SHARE: Final = 0.5

#: The factor by which the network is wider whose memory is measured.
_WIDER: Final = 8

#: Share of the units of the slice whose memory is measured.
_HALF: Final = "0.5"

_MEGABYTE: Final = 1e6


def measure(options: Namespace) -> Figures:
    """Measure everything, and print it."""
    amount = _QUICK if options.quick else _FULL
    with TemporaryDirectory() as name:
        directory = Path(name) / "job"
        files.write(directory, amount.data)
        with ended_job(directory, "goal", _TASK, _LATENCY, amount.settings) as job:
            figures = _added(job, amount.repetitions)
        package = job.package("goal")
        figures |= _commands(package, amount.repetitions)
        figures |= _predictions(package, amount)
        figures |= _requests(Requests(package), amount.requests)
        figures |= _processor_time(package, directory, Path(name) / "morphnet", amount.edge_steps)
        figures |= _memory(package, Path(name) / "wide", amount.repetitions)
    if options.quick:
        del figures["slice_speedup"]
    return figures


def _added(job: TaskJob, count: int) -> dict[str, float]:
    """Add goals of other tasks, and return the seconds."""
    seconds = []
    for number in range(count):
        began = perf_counter()
        job.add(f"added-{number}", ("has", str(number)), _LATENCY)
        seconds.append(perf_counter() - began)
    return _shown({"add_seconds": median(seconds), "longest_add_seconds": max(seconds)})


def _commands(package: Path, count: int) -> dict[str, float]:
    """Customize a package by the command, with and without latencies of slices."""

    def customize_anew() -> None:
        shutil.rmtree(state_directory(package), ignore_errors=True)
        customize()

    def customize() -> None:
        mistify("customize", "--package", package, "--task", ",".join(_TASK), "--latency", _LATENCY)

    first = median_seconds(customize_anew, count)
    return _shown({"first_customize_seconds": first, "customize_seconds": median_seconds(customize, count)})


def _predictions(package: Path, amount: _Amount) -> dict[str, float]:
    """Return the errors of the device's predictor and of regressions on gates."""
    version, store = factory_of(package)
    supernet = store.map_supernet(version.directory)
    with TemporaryDirectory() as state:
        table = slice_latencies(store, supernet, Path(state), 1, on_progress=lambda line: None)
    most = max(amount.sampled)
    slices = measured_slices(store, supernet, most + amount.tested, amount.seconds)
    tested = slices.part(slice(most, None))
    regressions = {
        f"regression_error_{count}": regression_error(slices.part(slice(count)), tested)
        for count in amount.sampled
    }
    return _shown({"predictor_error": tested.error(table.predicted_ms(tested.widths)), **regressions})


def _requests(requests: Requests, count: int) -> dict[str, float]:
    """Make random requests, print those that end badly, and return the figures."""
    return _shown(
        request_figures(list(requests.possible(count)), list(requests.impossible(max(2, count // 10))))
    )


def request_figures(possible: Sequence[Outcome], impossible: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of requests, and print those that end badly.

    Args:
        possible: The answers to requests with limits that some slice keeps.
        impossible: The answers to requests with limits that none keeps.
    """
    installed = [one for one in possible if one.error is None]
    for one in possible:
        if one.error is not None or not one.is_within:
            Console().print(f"{one.request}: {one.error or f'{one.latency_ms:.4g} ms, {one.memory_bytes} B'}")
    for one in impossible:
        if not one.is_refused:
            Console().print(f"{one.request}: not refused: {one.error or one.latency_ms}")
    return {
        "within_limit": _share(one.is_within for one in installed),
        "unexpected_errors": len(possible) - len(installed),
        "refused": _share(one.is_refused for one in impossible),
    }


def _share(holds: Iterable[bool]) -> float:
    return float(np.mean([*holds]))


def _processor_time(package: Path, data: Path, directory: Path, steps: int) -> dict[str, float]:
    """Compare the processor time of slices, before and after, with that of an edge of `morphnet`."""
    before = _on_device("slices", package)
    edge_seconds = _edge_seconds(data, directory, steps)
    slice_seconds = (before + _on_device("slices", package)) / 2
    return _shown(
        {
            "slice_ms": 1e3 * slice_seconds,
            "edge_seconds": edge_seconds,
            "slice_speedup": edge_seconds / slice_seconds,
        }
    )


def _edge_seconds(data: Path, directory: Path, steps: int) -> float:
    """Return the processor time of an edge of `morphnet` for one question, with its package.

    Args:
        data: The directory of the job's data.
        directory: A new directory for the data of the question, and for checkpoints.
        steps: Training steps.
    """
    directory.mkdir()
    parts = [_one_question(data, directory, part) for part in ("train", "validation")]
    source, settings = ModelSource(path=str(data / files.NETWORK)), {"source_steps": 0}
    porting = Porting(source, DataSource(train=parts[0], test=parts[1]), directory, settings)
    began = process_time()
    porting.package(porting.checkpoint(_SHARE, steps), Quantization.NONE)
    return process_time() - began


def _one_question(data: Path, directory: Path, part: str) -> str:
    """Write the answers to one question, and return the path."""
    space, file = TaskSpace.read(data / files.TASKS), directory / f"{part}.npz"
    with np.load(data / f"{part}.npz") as arrays:
        answers = arrays["answer"][:, space.listed[space.parse(_TASK)]]
        np.savez(file, image=arrays["image"][answers >= 0], answer=answers[answers >= 0, None])
    return str(file)


def _memory(package: Path, wide: Path, count: int) -> dict[str, float]:
    """Return the memory of customizing packages relative to that of loading networks.

    Args:
        package: A small package.
        wide: A new directory for a large one.
        count: Number of repetitions.
    """
    write_package(wide, _WIDER)
    task = ",".join(_TASK)

    def customized(package: Path) -> tuple[float, float]:
        """Return the memory of customizing and of loading the slice."""
        return _on_device("customize", package, task, _HALF), _on_device("load", package)

    def customized_anew() -> tuple[float, float]:
        """Return the memory of customizing for the first time, and of loading the whole network."""
        shutil.rmtree(state_directory(wide), ignore_errors=True)
        whole = _on_device("load", wide)
        return _on_device("customize", wide, task, _HALF, "1000x"), whole

    sides = {
        "customize_memory": lambda: customized(wide),
        "small_customize_memory": lambda: customized(package),
        "first_customize_memory": customized_anew,
    }
    return _shown({name: _memory_ratio(name, side, count) for name, side in sides.items()})


def _memory_ratio(name: str, side: Callable[[], tuple[float, float]], count: int) -> float:
    """Return the ratio of two sides from their medians, less the memory of a process that does nothing."""
    taken = [(_on_device("nothing"), *side()) for _ in range(count)]
    nothing, *peaks = (median(column) for column in zip(*taken, strict=True))
    customized, loaded = (peak - nothing for peak in peaks)
    Console().print(f"{name}: {customized / _MEGABYTE:.1f} MB, loading {loaded / _MEGABYTE:.1f} MB")
    return float(customized / loaded)


def _on_device(what: str, package: Path = Path(), *words: str) -> float:
    """Return the figure of a process that performs a task."""
    command = [sys.executable, "-m", "benchmarks.factory.speed_side", what, str(package), *words]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _shown(figures: dict[str, float]) -> dict[str, float]:
    """Print figures as soon as they are known, and return them."""
    Console().print(", ".join(f"{name} {figure:.4g}" for name, figure in figures.items()))
    return figures


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("factory.speed", TARGETS, measure, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
