"""Networks in one package, between which it switches while it runs (paper 8.3: Table 4, and more).

`python -m benchmarks.switching --data DIR [--network NAME] [--packages DIR] [--quick] [--json FILE]
[--picture FILE]`

ResNet-8 and a network of depthwise convolutions are ported to half of their multiply-adds, with branches
from a third to three times of that. The package with three branches has the first, the third and the last
of the five. DIR has `cifar10/{train,test}.npz` and `mlperf_tiny/resnet8_cifar10.h5`.

For each network and 3 and 5 branches:

- `extra_params`: weights of the package beside those of the goal's own network, as a share of them.
- `latency_ratio`: each branch in the package against its network alone, in turn; the worst branch's median.
- `switch_extra_us`: by how much an inference takes longer right after the decision for another branch.
- `load_ms`: what loading the package and its first inference take instead.

Then a load takes two fifths of the processor and releases it again, every five seconds, while an inference
begins every two milliseconds, with the five branches of the first network: `monitor` (the daemon, as a
process of its own), the largest branch and the smallest one. The budget is half again what the largest branch
takes on the free processor; the monitor's target is four fifths of that, as it judges by the median. The load
makes inferences take some 1.7 times longer: too long for the largest branch, and not for the smallest, which
has a third of the largest one's latency, or less. For each:

- `within`: the share of inferences within the budget; `within_loaded`, of those under the load;
- `accuracy`: of the branches that ran, the mean over all inferences.

`recovery_seconds` is the longest that it took after a change of the load until nine of ten inferences of the
next half second were within the budget. `failed` are inferences that failed or gave another result than that
of a branch. `growth_mib` is by how much the process grew in a minute (`--soak SECONDS`) of inferences and
switches.

`--packages DIR` keeps the packages, and takes those that are there. On a machine that does other things as
well, put `chrt --reset-on-fork --fifo 1` before the command: they then take nothing from the inferences.
"""

import itertools
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figures, Target, add_data_option, data_with, run
from benchmarks.load import Load
from benchmarks.porting import FILES, depthwise, resnet8
from mistify.branches import BranchesConfig
from mistify_client.monitor.state import MonitorState
from mistify_client.runtime import PortedModel, load

SHARE: Final = 0.5
COUNTS: Final = (3, 5)
_NETWORKS: Final = ("resnet8", "depthwise")

TARGETS: Final[dict[str, Target]] = {
    **{
        f"{name}_b{count}_latency_ratio": {"max": 1.05, "full_run_only": name != "resnet8"}
        for name in _NETWORKS
        for count in COUNTS
    },
    **{
        f"{name}_b{count}_switch_extra_us": {"max": 100, "full_run_only": name != "resnet8"}
        for name in _NETWORKS
        for count in COUNTS
    },
    "recovery_seconds": {"max": 1},
    "failed": {"max": 0},
    "growth_mib": {"max": 2},
}

#: Bursts that two latencies are compared by, and inferences of each.
_ROUNDS: Final = 100
_RUNS: Final = 30

#: Share of the processor that the load takes. At three fifths the smallest branch exceeds the budget half of
#: the time: what is taken comes in slices of 0.15 ms, twice what that branch takes.
_TAKEN: Final = 0.4
_PHASE_SECONDS: Final = 5.0
_PHASES: Final = 6
_PACE_SECONDS: Final = 0.002

#: Recovered is who keeps to the budget with this share of the inferences of so many seconds.
_RECOVERED: Final = 0.9
_STRETCH_SECONDS: Final = 0.5

#: The budget, in latencies of the largest branch on the free processor; and the monitor's target as a share
#: of it. The monitor keeps the median to its target, so that nearly all inferences keep to the budget.
_BUDGET: Final = 1.5
_TARGET: Final = 0.8

_STARTING_SECONDS: Final = 60.0

_MONITOR: Final = """
interval = "100ms"
[targets]
latency = "{target:.4f}ms"
[policy]
dwell = "500ms"
"""


@dataclass(frozen=True)
class Trace:
    """Inferences one after the other.

    Attributes:
        ended: When each ended, seconds from the start.
        latency_ms: What each took.
        branch: Which branch ran.
        changes: When the load changed.
        failed: How many failed, or gave what no branch gives.
    """

    ended: npt.NDArray[np.float64]
    latency_ms: npt.NDArray[np.float64]
    branch: npt.NDArray[np.int64]
    changes: tuple[float, ...]
    failed: int

    @property
    def loaded(self) -> npt.NDArray[np.bool_]:
        """Which inferences ended under the load: after an odd number of changes."""
        odd: npt.NDArray[np.bool_] = np.searchsorted(self.changes, self.ended) % 2 == 1
        return odd


def measure(options: Namespace) -> Figures:
    """All figures; prints the tables and draws the picture."""
    data = data_with(FILES, options)
    figures: dict[str, float] = {}
    names = [options.network] if options.network else _NETWORKS[: 1 if options.quick else None]
    for name in names:
        with TemporaryDirectory() as directory:
            kept = options.packages or Path(directory)
            packages, alone = _ported(name, data, kept / name, quick=options.quick)
            for count, package in packages.items():
                found = _package_figures(package, alone[count])
                figures |= {f"{name}_b{count}_{figure}": value for figure, value in found.items()}
            if name == names[0]:
                figures |= _under_load(packages[COUNTS[-1]], data, options)
    Console().print(_table(figures, names))
    return figures


def _ported(
    name: str, data: Path, directory: Path, *, quick: bool
) -> tuple[dict[int, Path], dict[int, list[Path]]]:
    """Packages by their number of branches, and for each the packages of its branches alone."""
    if not directory.exists():
        with TemporaryDirectory() as scratch:
            store, made = Path(scratch) / "store", Path(scratch) / "packages"
            store.mkdir()
            _port(name, data, store, made, 40 if quick else 400)
            shutil.copytree(made, directory)
    packages = {count: directory / f"b{count}" for count in COUNTS}
    alone = {count: [directory / f"alone-{number}" for number in _chosen(count)] for count in COUNTS}
    return packages, alone


def _port(name: str, data: Path, store: Path, made: Path, steps: int) -> None:
    porting = resnet8(data, store, {}) if name == "resnet8" else depthwise(data, store)
    goal = porting.checkpoint(SHARE, 2 * steps)
    five = porting.branches(goal, SHARE, BranchesConfig(count=COUNTS[-1]).shares, steps)
    for number, branch in enumerate(five.branches):
        porting.write_package(goal._replace(artifact=branch.checkpoint), made / f"alone-{number}")
    for count in COUNTS:
        chosen = tuple(five.branches[number] for number in _chosen(count))
        porting.write_package(goal, made / f"b{count}", five.model_copy(update={"branches": chosen}))


def _chosen(count: int) -> range:
    """Which of the most branches a package with fewer has."""
    return range(0, COUNTS[-1], (COUNTS[-1] - 1) // (count - 1))


def _package_figures(package: Path, alone: Sequence[Path]) -> dict[str, float]:
    """What a package costs beside its own network, what its branches take, and what a switch takes."""
    model = load(package, threads=1)
    one = _example(model)
    singles = [load(path, threads=1) for path in alone]
    own = singles[model.manifest.default_branch].manifest
    ratios = []
    for branch, single in enumerate(singles):
        model.switch(branch)
        ratios.append(_ratio(partial(single, one), partial(model, one)))
    return {
        "extra_params": _weight_bytes(package) / _weight_bytes(alone[model.manifest.default_branch]) - 1,
        "params": own.achieved["params"],
        "latency_ratio": max(ratios),
        "switch_extra_us": 1e6 * _switch_seconds(model, one),
        "load_ms": 1e3 * median(_timed(lambda: load(package, threads=1)(one)) for _ in range(5)),
    }


def _weight_bytes(package: Path) -> int:
    """Of the file, which is next to nothing but weights."""
    return (package / "serve.tflite").stat().st_size


def _ratio(alone: Callable[[], object], inside: Callable[[], object]) -> float:
    """How much longer one takes than the other: bursts of both in turn, the median of their ratios."""
    ratios = []
    for _ in range(_ROUNDS):
        a, b = (median(_timed(call) for _ in range(_RUNS)) for call in (alone, inside))
        ratios.append(b / a)
    return median(ratios)


def _switch_seconds(model: PortedModel, one: npt.NDArray[Any], rounds: int = 200) -> float:
    """What deciding and the first inference on the new branch take, beyond a further inference on it."""
    count = len(model.branches)
    extra = []
    for number in range(rounds):
        branch = number % count

        def first(branch: int = branch) -> None:
            model.switch(branch)
            model(one)

        extra.append(_timed(first) - median(_timed(lambda: model(one)) for _ in range(5)))
    return median(extra)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _under_load(package: Path, data: Path, options: Namespace) -> dict[str, float]:
    """The monitor against the largest and the smallest branch, and the soak."""
    model = load(package, threads=1)
    one = _example(model)
    last = len(model.branches) - 1
    model.switch(last)
    budget = 1e3 * _BUDGET * median(_timed(lambda: model(one)) for _ in _paced(time.monotonic() + 1))
    config = package.parent / "monitor.toml"
    config.write_text(_MONITOR.format(target=_TARGET * budget))
    sides: dict[str, tuple[int, Callable[[], AbstractContextManager[None]]]] = {
        "monitor": (0, partial(_monitored, package, config)),
        "largest": (last, nullcontext),
        "smallest": (0, nullcontext),
    }
    phases = 2 if options.quick else _PHASES
    traces = {}
    with Load(_TAKEN) as taken:
        for side, (branch, watched) in sides.items():
            model.switch(branch)
            with watched():
                traces[side] = _traced(model, one, taken, phases)
    accuracies = np.array([branch.accuracy for branch in model.branches])
    figures = {"budget_ms": budget, "recovery_seconds": _recovery(traces["monitor"], budget)}
    for side, trace in traces.items():
        within = trace.latency_ms <= budget
        figures[f"{side}_within"] = 100 * float(np.mean(within))
        figures[f"{side}_within_loaded"] = 100 * float(np.mean(within[trace.loaded]))
        figures[f"{side}_accuracy"] = 100 * float(accuracies[trace.branch].mean())
        figures[f"{side}_inferences"] = len(trace.ended)
    figures["failed"] = sum(trace.failed for trace in traces.values())
    if options.picture:
        _draw(traces, budget, accuracies, options.picture)
    return figures | {"growth_mib": _growth(model, one, 5 if options.quick else options.soak)}


@contextmanager
def _monitored(package: Path, config: Path) -> Iterator[None]:
    """While the daemon watches a package."""
    command = [str(Path(sys.executable).with_name("mistify")), "monitor", "--package", str(package)]
    status = MonitorState.of(package).status
    status.unlink(missing_ok=True)
    process = subprocess.Popen([*command, "--config", str(config)])
    try:
        deadline = time.monotonic() + _STARTING_SECONDS
        while not status.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        yield
        if process.poll() is not None:
            raise ChildProcessError(f"the monitor ended with exit code {process.returncode}")
    finally:
        process.terminate()
        process.wait()


def _traced(model: PortedModel, one: npt.NDArray[Any], taken: Load, phases: int) -> Trace:
    """Inferences while the load comes and goes; what they give is checked against what branches give."""
    known = _known(model, one)
    start = time.monotonic()
    rows: list[tuple[float, float, int]] = []
    changes: list[float] = []
    failed = 0
    for phase in range(phases):
        if phase:
            taken.switch(on=phase % 2 == 1)
            changes.append(time.monotonic() - start)
        for _ in _paced(start + (phase + 1) * _PHASE_SECONDS):
            before = time.monotonic()
            found = _output(model, one)
            ended = time.monotonic()
            branch = next((number for number, told in enumerate(known) if np.array_equal(found, told)), None)
            failed += branch is None
            rows.append((ended - start, 1e3 * (ended - before), branch or 0))
    taken.switch(on=False)
    ends, latencies, branches = (np.array(column) for column in zip(*rows, strict=True))
    return Trace(ends, latencies, branches, tuple(changes), failed)


def _paced(end: float) -> Iterator[None]:
    """Begin of each inference, until a time of the monotonic clock."""
    for begin in itertools.count(time.monotonic(), _PACE_SECONDS):
        if begin >= end:
            return
        time.sleep(max(0.0, begin - time.monotonic()))
        yield


def _known(model: PortedModel, one: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """What each branch gives for the example, which tells the branches apart."""
    before, found = model.branch, []
    for branch in range(len(model.branches)):
        model.switch(branch)
        found.append(_output(model, one))
    model.switch(before)
    return found


def _output(model: PortedModel, one: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What the model's only output is."""
    found = model(one)
    if isinstance(found, dict):
        raise TypeError(f"several outputs: {', '.join(found)}")
    return found


def _recovery(trace: Trace, budget: float) -> float:
    """How long it takes after a change, at the most, until most inferences are within the budget."""
    return max(
        _until_recovered(trace.ended[during] - begin, trace.latency_ms[during] <= budget)
        for begin, end in pairwise([*trace.changes, trace.ended[-1]])
        for during in [(trace.ended >= begin) & (trace.ended < end)]
    )


def _until_recovered(ended: npt.NDArray[np.float64], within: npt.NDArray[np.bool_]) -> float:
    """Seconds until the first stretch with enough inferences within the budget; all, if there is none."""
    before = np.concatenate([[0], np.cumsum(within)])
    last = np.searchsorted(ended, ended + _STRETCH_SECONDS)
    whole = ended + _STRETCH_SECONDS <= ended[-1]
    shares = (before[last] - before[:-1]) / (last - np.arange(len(ended)))
    recovered = np.flatnonzero(whole & (shares >= _RECOVERED))
    return float(ended[recovered[0]] if len(recovered) else ended[-1])


def _growth(model: PortedModel, one: npt.NDArray[Any], seconds: float) -> float:
    """By how many MiB the process grows while it infers and switches."""
    _busy(model, one, min(5.0, seconds))
    before = _resident()
    _busy(model, one, seconds)
    return _resident() - before


def _busy(model: PortedModel, one: npt.NDArray[Any], seconds: float) -> None:
    rng, end = np.random.default_rng(0), time.monotonic() + seconds
    while time.monotonic() < end:
        model.switch(int(rng.integers(len(model.branches))))
        model(one)
        model.statistics()


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def _example(model: PortedModel) -> npt.NDArray[Any]:
    """A random input."""
    (info,) = model.inputs
    return np.random.default_rng(0).uniform(0, 255, (1, *info.shape[1:])).astype(info.dtype)


def _table(figures: Mapping[str, float], names: Sequence[str]) -> Table:
    table = Table(title="Multi-branch packages", title_justify="left")
    for column in ("package", "extra weights", "latency, worst branch", "switch, us", "load, ms"):
        table.add_column(column, justify="left" if column == "package" else "right")
    for name in names:
        for count in COUNTS:
            found = {key: figures[f"{name}_b{count}_{key}"] for key in ("extra_params", "latency_ratio")}
            table.add_row(
                f"{name}-b{count}",
                f"{found['extra_params']:.2f}x",
                f"{found['latency_ratio']:.3f}",
                f"{figures[f'{name}_b{count}_switch_extra_us']:.1f}",
                f"{figures[f'{name}_b{count}_load_ms']:.1f}",
            )
    return table


def _draw(
    traces: Mapping[str, Trace], budget: float, accuracies: npt.NDArray[np.float64], file: Path
) -> None:
    """Latencies over time, and the accuracy of the branches that ran."""
    figure = Figure(figsize=(8, 2.0 * (1 + len(traces))), layout="constrained")
    *each, together = figure.subplots(1 + len(traces), sharex=True)
    for axes, (side, trace) in zip(each, traces.items(), strict=True):
        colours = {"c": trace.branch, "cmap": "viridis", "vmin": 0, "vmax": len(accuracies) - 1}
        axes.scatter(trace.ended, trace.latency_ms, s=1, **colours)
        axes.axhline(budget, color="red", lw=1)
        axes.set(title=f"{side}: latency, its colour the branch", ylabel="ms", ylim=(0, 3 * budget))
        together.step(trace.ended, 100 * accuracies[trace.branch], where="post", label=side)
    for axes in (*each, together):
        for begin, end in zip(trace.changes[::2], [*trace.changes[1::2], trace.ended[-1]], strict=False):
            axes.axvspan(begin, end, alpha=0.1)
    together.set(title="accuracy of the branch that runs", ylabel="%")
    together.set(xlabel="seconds; the load is on where it is shaded")
    together.legend(loc="lower right", fontsize="small")
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--packages", type=Path, metavar="DIR", help="keep packages here, take what is there")
    parser.add_argument("--network", choices=_NETWORKS, help="port only this one")
    parser.add_argument("--soak", type=float, default=60.0, metavar="SECONDS", help="how long to soak")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the latencies into this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; returns the exit code."""
    return run("switching", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
