"""Switching between the networks of a package at run time (paper 8.3: Table 4, and more).

`python -m benchmarks.device.switching --data DIR [--network NAME] [--packages DIR] [--quick] [--json FILE]
[--picture FILE]`

ResNet-8 and a network of depthwise convolutions are ported to half of their multiply-adds, with five branches
from a third to three times that budget. The package with three branches has the first, third and last of the
five. DIR has `cifar10/{train,test}.npz` and `mlperf_tiny/resnet8_cifar10.h5`.

For each network and 3 and 5 branches:

- `extra_params`: weights of the package in addition to those of the goal's own network, as a share of these.
- `latency_ratio`: latency of a branch in the package relative to its network alone, measured alternately; the
  median of the slowest branch.
- `switch_extra_us`: additional time of the first inference after the decision to switch branches.
- `load_ms`: time of the alternative, which is to load the package and run its first inference.

Then, with the five branches of the first network, a load occupies two fifths of the CPU, and releases it
again, alternating every five seconds, while an inference begins every two milliseconds. The sides are
`monitor` (the daemon, in a separate process), the largest branch and the smallest branch. The budget is one
and a half times the largest branch's latency on an idle CPU; the monitor's target is four fifths of that,
because it judges by the median. The load makes inferences about 1.7 times slower: too slow for the largest
branch, but not for the smallest, which takes at most a third of the largest one's latency. For each side:

- `within`: the share of inferences within the budget; `within_loaded`: the share under load;
- `accuracy`: the mean over all inferences of the accuracy of the branch that ran.

`monitor_accuracy_share` is the share of the largest branch's advantage in accuracy over the smallest branch
that the monitor keeps; a monitor that never switches keeps 0.

`recovery_seconds` is the longest time from a change of the load until, for half a second, nine of ten
inferences are within the budget. `failed` counts inferences that failed or returned an output unlike those of
all branches. `growth_mib` is the memory growth of the process during a minute (`--soak SECONDS`) of
inferences and switches.

`--packages DIR` keeps the packages, and reuses existing ones; quick runs have separate packages. On a busy
machine, prefix the command with `chrt --reset-on-fork --fifo 1`, so that other programs take no CPU time from
the inferences.
"""

import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.device.switching_load import example, timed, under_load
from benchmarks.harness.mobilenet import mobilenet
from benchmarks.harness.run import Figures, Target, add_data_option, data_with, run
from benchmarks.harness.worker import FILES, TEST, TRAIN, Porting, resnet8
from mistify.config.package.branches import BranchesConfig
from mistify_client import PortedModel, load
from mistify_server.tasks.sources import DataSource, ModelSource

SHARE: Final = 0.5
COUNTS: Final = (3, 5)
_NETWORKS: Final = ("resnet8", "depthwise")

TARGETS: Final[dict[str, Target]] = {
    **{
        f"{name}_b{count}_latency_ratio": {
            "what": f"{name}, {count} branches: latency of the slowest branch relative to its network alone",
            "max": 1.05,
            "full_run_only": name != "resnet8",
        }
        for name in _NETWORKS
        for count in COUNTS
    },
    **{
        f"{name}_b{count}_switch_extra_us": {
            "what": f"{name}, {count} branches: time of a switch in addition to an inference, us",
            "max": 100,
            "full_run_only": name != "resnet8",
        }
        for name in _NETWORKS
        for count in COUNTS
    },
    "recovery_seconds": {"what": "under load: time until the latency is within the budget, s", "max": 1},
    "monitor_accuracy_share": {"what": "under load: accuracy relative to the largest branch", "min": 0.8},
    "failed": {"what": "under load: failed inferences", "max": 0},
    "growth_mib": {"what": "under load: memory growth, MiB", "max": 2},
}

#: Bursts for comparing two latencies, and inferences per burst.
_ROUNDS: Final = 100
_RUNS: Final = 30


def measure(options: Namespace) -> Figures:
    """Return all figures; print the tables and draw the picture."""
    data = data_with(FILES, options)
    figures: dict[str, float] = {}
    names = [options.network] if options.network else _NETWORKS[: 1 if options.quick else None]
    for name in names:
        with TemporaryDirectory() as directory:
            kept = options.packages or Path(directory)
            packages, alone = _ported(name, data, kept, quick=options.quick)
            for count, package in packages.items():
                package_figures = _package_figures(package, alone[count])
                figures |= {f"{name}_b{count}_{figure}": value for figure, value in package_figures.items()}
            if name == names[0]:
                figures |= under_load(
                    packages[COUNTS[-1]], quick=options.quick, soak=options.soak, picture=options.picture
                )
    Console().print(_table(figures, names))
    return figures


def _ported(
    name: str, data: Path, kept: Path, *, quick: bool
) -> tuple[dict[int, Path], dict[int, list[Path]]]:
    """Return packages by their number of branches, and for each the packages of its branches alone."""
    directory = kept / (f"{name}-quick" if quick else name)
    if not directory.exists():
        with TemporaryDirectory() as scratch:
            store, ported = Path(scratch) / "store", Path(scratch) / "packages"
            store.mkdir()
            _port(name, data, store, ported, 40 if quick else 400)
            shutil.copytree(ported, directory)
    packages = {count: directory / f"b{count}" for count in COUNTS}
    alone = {count: [directory / f"alone-{number}" for number in _chosen(count)] for count in COUNTS}
    return packages, alone


def _port(name: str, data: Path, store: Path, packages: Path, steps: int) -> None:
    porting = resnet8(data, store, {}) if name == "resnet8" else _depthwise(data, store)
    goal = porting.checkpoint(SHARE, 2 * steps)
    five = porting.branches(goal, SHARE, BranchesConfig(count=COUNTS[-1]).shares, steps)
    for number, branch in enumerate(five.branches):
        porting.write_package(goal._replace(artifact=branch.checkpoint), packages / f"alone-{number}")
    for count in COUNTS:
        chosen = tuple(five.branches[number] for number in _chosen(count))
        porting.write_package(goal, packages / f"b{count}", five.model_copy(update={"branches": chosen}))


def _depthwise(data: Path, directory: Path) -> Porting:
    """Return the porting of a small MobileNet with random weights, which are trained by tuning the source."""
    path = directory / "depthwise.keras"
    mobilenet().save(path)
    files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
    settings = {"learning_rate": 0.05}
    return Porting(ModelSource(path=str(path)), files, directory, settings)


def _chosen(count: int) -> range:
    """Return the indices of the largest package's branches that a package with fewer branches has."""
    return range(0, COUNTS[-1], (COUNTS[-1] - 1) // (count - 1))


def _package_figures(package: Path, alone: Sequence[Path]) -> dict[str, float]:
    """Return a package's overhead over its own network, and the times of its branches and of a switch."""
    model = load(package, threads=1)
    features = example(model)
    singles = [load(path, threads=1) for path in alone]
    own = singles[model.manifest.default_branch].manifest
    ratios = []
    for option, single in zip(model.options, singles, strict=True):
        model.switch(option.id)
        ratios.append(_ratio(partial(single, features), partial(model, features)))
    return {
        "extra_params": _weight_bytes(package) / _weight_bytes(alone[model.manifest.default_branch]) - 1,
        "params": own.achieved["params"],
        "latency_ratio": max(ratios),
        "switch_extra_us": 1e6 * _switch_seconds(model, features),
        "load_ms": 1e3 * median(timed(lambda: load(package, threads=1)(features)) for _ in range(5)),
    }


def _weight_bytes(package: Path) -> int:
    """Return the size of the file, which consists almost entirely of weights."""
    return (package / "serve.tflite").stat().st_size


def _ratio(alone: Callable[[], object], inside: Callable[[], object]) -> float:
    """Return the ratio of two durations: the median over alternating bursts."""
    ratios = []
    for _ in range(_ROUNDS):
        a, b = (median(timed(call) for _ in range(_RUNS)) for call in (alone, inside))
        ratios.append(b / a)
    return median(ratios)


def _switch_seconds(model: PortedModel, features: npt.NDArray[Any], rounds: int = 200) -> float:
    """Return the seconds of a switch with the first inference after it, less those of other inferences."""
    ids = [option.id for option in model.options]
    extra = []
    for number in range(rounds):
        option = ids[number % len(ids)]

        def first(option: str = option) -> None:
            model.switch(option)
            model(features)

        extra.append(timed(first) - median(timed(lambda: model(features)) for _ in range(5)))
    return median(extra)


def _table(figures: Mapping[str, float], names: Sequence[str]) -> Table:
    table = Table(title="Multi-branch packages", title_justify="left")
    for column in ("package", "extra weights", "latency, worst branch", "switch, us", "load, ms"):
        table.add_column(column, justify="left" if column == "package" else "right")
    for name in names:
        for count in COUNTS:
            row = {key: figures[f"{name}_b{count}_{key}"] for key in ("extra_params", "latency_ratio")}
            table.add_row(
                f"{name}-b{count}",
                f"{row['extra_params']:.2f}x",
                f"{row['latency_ratio']:.3f}",
                f"{figures[f'{name}_b{count}_switch_extra_us']:.1f}",
                f"{figures[f'{name}_b{count}_load_ms']:.1f}",
            )
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--packages", type=Path, metavar="DIR", help="keep packages here, and reuse them")
    parser.add_argument("--network", choices=_NETWORKS, help="port only this network")
    parser.add_argument(
        "--soak", type=float, default=60.0, metavar="SECONDS", help="duration of the soak test"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the latencies to this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("device.switching", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
