"""The time in which a block package adjusts to a slower device, and the memory needed to adapt it.

`python -m benchmarks.elastic.update [--quick] [--json FILE]`

Residual networks with random weights are adapted to this device on random images. Their residual blocks have
variants with a half and a quarter of the inner channels, and blocks that replace two. Subnets are ranked by
their agreement with the original network; the results here do not depend on the quality of this ranking.

An app then runs one inference after the other under the monitor, a separate process with the default interval
of 250 ms. Suddenly the device becomes slow: every inference runs four times instead of once, as if the CPU
were throttled. The most accurate subnet then takes twice the target, and the fastest ones less than the
target. Blocks load as fast as before. This is repeated with the change at different times within an interval;
figures are the median and the worst case. Before the change, the most accurate subnet runs as one network;
the next one runs as its blocks until these have been stitched.

- `recovery_ms`: from the change to the end of the first inference within the target that is followed by
  others
  with a median within the target: at most two intervals and 100 ms;
- `switch_ms`: the part of this after the monitor's last decision: the current inference ends, and blocks are
  loaded
  while the old subnet still runs.

`prediction_error` is the difference between the latency that `mistify adapt` predicts for a subnet and its
latency once stitched, relative to the latter: the median over the pool.

`memory_ratio` is the peak memory of `mistify adapt` for a 40 MB network, relative to that of loading its
largest subnet and running it once; both in separate processes, less the memory of a process that does
neither.
"""

import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console

from benchmarks.elastic.packages import Size, write_package
from benchmarks.harness.monitoring import monitored
from benchmarks.harness.run import Figures, Target, run
from mistify.package.opened import Package
from mistify.parsing.quantities import parse_time
from mistify.profiling.measuring import best_ms
from mistify.wording import counted
from mistify_client import PortedModel
from mistify_client.assembly.background_process import BackgroundProcess
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.assembly.stitched_networks import STITCHED, STITCHER
from mistify_client.monitor.state.state import MonitorState
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.interpreter import Ran, Run, Shapes, zeros
from mistify_client.runtime.loaded import LoadedVersion, recorded
from mistify_client.runtime.options import options_of
from mistify_client.runtime.paged import PagedOptions, open_paged
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from mistify_client.subnets.search_session import adapt

_INTERVAL_MS: Final = 250

#: The slowdown of the device, and the target as a multiple of the most accurate subnet's latency before it.
_SLOWER: Final = 4
_TARGET: Final = 2.0

TARGETS: Final[dict[str, Target]] = {
    "recovery_ms": {
        "what": "recovery time after a slowdown, median, ms",
        "max": 2 * _INTERVAL_MS + 100,
    },
    "recovery_ms_worst": {
        "what": "recovery time after a slowdown, longest of 30, ms",
        "max": 2 * _INTERVAL_MS + 100,
    },
    "switch_ms": {"what": "switching time within the recovery, median, ms", "max": 100},
    "switch_ms_worst": {"what": "switching time within the recovery, longest of 30, ms", "max": 100},
    **{
        f"prediction_error_{threads}": {
            "what": f"error of the latency that `adapt` predicts for a stitched subnet, "
            f"{threads.replace('_', ' ')}",
            "max": 0.1,
        }
        for threads in ("1_thread", "2_threads")
    },
    "memory_ratio": {"what": "memory of `adapt` relative to the largest subnet", "max": 1.5},
}

_ROUNDS: Final = 30
_QUICK_ROUNDS: Final = 3

#: Seconds for measuring the latency of a stitched subnet.
_LATENCY_SECONDS: Final = 1.0

#: Number of inferences for measuring the normal latency, and for confirming that a device has recovered.
_USUAL: Final = 200
_KEPT: Final = 5

#: Seconds after which waiting for a reaction is given up, and seconds between two inferences.
_PATIENCE: Final = 20.0
_PAUSE: Final = 0.005

#: Seconds that a new monitor observes the app before the change.
_SETTLED: Final = 1.0

_MONITOR: Final = """
interval = "{interval}ms"
[targets]
latency = "{target:.4f}ms"
[search]
enabled = false
"""

_MEGABYTE: Final = 1e6

#: 2.4 MB and 40 MB of weights.
_APP: Final = Size(blocks=8, width=64, side=16)
_LARGE: Final = Size(blocks=8, width=256, side=8)

_IMAGES: Final = 40
_LARGE_IMAGES: Final = 20


class Inference(NamedTuple):
    """The start and end of an inference, in wall-clock seconds."""

    began: float
    ended: float

    @property
    def latency_ms(self) -> float:
        """Return the duration in milliseconds."""
        return 1e3 * (self.ended - self.began)


class Update(NamedTuple):
    """Milliseconds from a change, and from the resulting decision, to a result within the target."""

    recovery_ms: float
    switch_ms: float


def measure(options: Namespace) -> Figures:
    """Measure updates, then memory, and print both."""
    with TemporaryDirectory() as name:
        package = Path(name) / "package"
        data = write_package(package, _APP, _IMAGES)
        pool = adapt(package, data, parse_time("1x")).pool
        lines = [f"{entry.latency_ms / pool.original_ms:.2f}x {entry.accuracy:.2f}" for entry in pool.entries]
        Console().print("pool, latency and agreement: " + ", ".join(lines))
        updates = _updates(package, data, _QUICK_ROUNDS if options.quick else _ROUNDS)
        errors = [_prediction_error(package, data, threads) for threads in (1, 2)]
    with TemporaryDirectory() as name:
        package = Path(name) / "package"
        data = write_package(package, _LARGE, _LARGE_IMAGES)
        ratio = _memory_ratio(package, data, 1 if options.quick else 3)
    names = ("prediction_error_1_thread", "prediction_error_2_threads")
    return {**updates, **dict(zip(names, errors, strict=True)), "memory_ratio": ratio}


def update_of(
    inferences: Sequence[Inference], changed: float, decided: Sequence[float], target_ms: float
) -> Update | None:
    """Return the duration of an update; None if the device has not recovered.

    A device has recovered with the first inference that meets the target, if the median of it and the next
    ones also meets it: a single one may be due to chance.

    Args:
        inferences: The inferences since the change, in order.
        changed: Time at which the device became slow, in wall-clock seconds.
        decided: Times at which the monitor chose another subnet, on the same clock.
        target_ms: The maximum latency.
    """
    for number, first in enumerate(inferences[: len(inferences) - _KEPT + 1]):
        following = inferences[number : number + _KEPT]
        if first.latency_ms <= target_ms and median(each.latency_ms for each in following) <= target_ms:
            last = max((time for time in decided if changed <= time <= first.ended), default=changed)
            return Update(1e3 * (first.ended - changed), 1e3 * (first.ended - last))
    return None


class SlowableSubnets:
    """The subnets of a package on a device that can become slow.

    Attributes:
        times: Number of times that each inference runs.
    """

    def __init__(self, subnets: PagedOptions[ChosenBlocks]) -> None:
        self.times = 1
        self.manifest, self.threads = subnets.manifest, subnets.threads
        self.running, self.warm_up = subnets.running, subnets.warm_up
        self._subnets = subnets

    @property
    def is_whole(self) -> bool:
        """Whether a single network runs, rather than several blocks."""
        return self._subnets.is_whole

    @property
    def shapes(self) -> Shapes | None:
        """Return the shapes of the subnets."""
        return self._subnets.shapes

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes, `times` times each."""
        run_once = self._subnets.prepared(inputs)

        def run_several(values: Mapping[str, Array], wanted: int) -> Ran:
            for _ in range(self.times - 1):
                run_once(values, wanted)
            return run_once(values, wanted)

        return run_several


class _App:
    """An app that runs one inference after the other, under a monitor.

    Attributes:
        subnets: The subnets in use.
        best: The id of the most accurate subnet.
    """

    def __init__(self, package: Path, image: npt.NDArray[np.float32]) -> None:
        state, opened = state_directory(package), Package.open(package)
        options = options_of(opened, state)
        best = len(options.options) - 1
        subnets = open_paged(opened, options, state, best, options.threads)
        switchboard = Switchboard.open(state)
        switchboard.option = best
        self.subnets = SlowableSubnets(subnets)
        version = LoadedVersion(self.subnets, options, opened)
        self.model = PortedModel(package, switchboard, recorded(version, state, switchboard.generation))
        self.best = options.options[best].id
        self._image = image

    def infer(self) -> Inference:
        """Run the next inference."""
        time.sleep(_PAUSE)
        began = time.time()
        self.model(self._image)
        return Inference(began, time.time())

    def infer_until(self, ended: Callable[[Sequence[Inference]], object]) -> list[Inference]:
        """Run inferences until a condition holds.

        Raises:
            TimeoutError: The condition does not become true.
        """
        inferences: list[Inference] = []
        deadline = time.monotonic() + _PATIENCE
        while not ended(inferences):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the package runs {self.model.running} after {_PATIENCE:g} s")
            inferences.append(self.infer())
        return inferences


def _updates(package: Path, data: Path, rounds: int) -> dict[str, float]:
    """Slow the device down repeatedly; return the figures of the monitor's reactions."""
    with np.load(data) as arrays:
        app = _App(package, arrays["x"][:1])
    rng = np.random.default_rng(0)
    updates = [_update(app, package, rng.uniform(0, _INTERVAL_MS)) for _ in range(rounds)]
    columns = {name: [getattr(update, name) for update in updates] for name in Update._fields}
    for name, values in columns.items():
        Console().print(f"{name}: {', '.join(f'{value:.0f}' for value in sorted(values))}")
    worst = {f"{name}_worst": max(values) for name, values in columns.items()}
    return {**{name: median(values) for name, values in columns.items()}, **worst}


def _update(app: _App, package: Path, phase_ms: float) -> Update:
    """Slow the device down until it has recovered, under a new monitor.

    Args:
        app: The running app.
        package: The app's package.
        phase_ms: Milliseconds that the most accurate subnet runs after `_SETTLED` seconds.
    """
    app.subnets.times = 1
    app.model.switch(app.best)
    app.infer_until(lambda inferences: app.model.running == app.best and app.subnets.is_whole)
    target_ms = _TARGET * median(app.infer().latency_ms for _ in range(_USUAL))
    config = package.parent / "monitor.toml"
    config.write_text(_MONITOR.format(interval=_INTERVAL_MS, target=target_ms))
    with monitored(package, config):
        end = time.time() + _SETTLED + phase_ms / 1e3
        app.infer_until(lambda inferences: time.time() >= end)
        app.subnets.times, changed = _SLOWER, time.time()
        inferences = app.infer_until(lambda inferences: update_of(inferences, changed, (), target_ms))
    decisions = list(_decisions(MonitorState.of(package).log))
    update = update_of(inferences, changed, decisions, target_ms)
    if update is None:
        raise AssertionError("the same inferences kept the target before")
    return update


def _decisions(log: Path) -> Iterator[float]:
    """Yield the times at which the monitor chose another subnet, in wall-clock seconds."""
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "switch":
            yield datetime.fromisoformat(entry["time"]).timestamp()


def _prediction_error(package: Path, data: Path, threads: int) -> float:
    """Return the median relative error of the pool's latencies against those of the stitched subnets."""
    pool = adapt(package, data, parse_time("1x"), threads=threads).pool
    errors = []
    for entry in pool.entries:
        measured_ms = _stitched_ms(package, entry.files, threads)
        errors.append(abs(entry.latency_ms / measured_ms - 1))
        Console().print(
            f"{counted(threads, 'thread')}: {counted(len(entry.files), 'block')}, expected "
            f"{entry.latency_ms:.3f} ms, measured {measured_ms:.3f} ms"
        )
    return median(errors)


def _stitched_ms(package: Path, files: Sequence[str], threads: int) -> float:
    """Return the latency of a subnet stitched to one network, in milliseconds."""
    opened, chosen = Package.open(package), ChosenBlocks(files=tuple(files))
    with TemporaryDirectory() as state:
        blocks = Blocks.of(opened, Path(state))
        if len(files) > 1 and (
            problem := BackgroundProcess().run(STITCHER, str(package), str(Path(state) / STITCHED), *files)
        ):
            raise RuntimeError(problem)
        example = zeros(opened.manifest.inputs)
        return best_ms(lambda: partial(PagedNetwork(blocks, chosen, threads), example), _LATENCY_SECONDS)


def _memory_ratio(package: Path, data: Path, rounds: int) -> float:
    """Return the memory for adapting a package relative to that of its largest subnet."""
    sides = ("nothing", "largest", "adapt")
    taken = [[_peak_bytes(side, package, data) for side in sides] for _ in range(rounds)]
    nothing, largest, adapting = (median(column) for column in zip(*taken, strict=True))
    rows = {"bare process": nothing, "largest subnet": largest - nothing, "adapt": adapting - nothing}
    Console().print(", ".join(f"{name} {count / _MEGABYTE:.1f} MB" for name, count in rows.items()))
    return float((adapting - nothing) / (largest - nothing))


def _peak_bytes(side: str, package: Path, data: Path) -> int:
    command = [sys.executable, "-m", "benchmarks.elastic.update_side", side, str(package), str(data)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("elastic.update", TARGETS, measure, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
