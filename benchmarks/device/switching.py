"""Switching between the networks of one package while it runs (paper 8.3: Table 4, and more).

`python -m benchmarks.device.switching --data DIR [--network NAME] [--packages DIR] [--quick] [--json FILE]
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
process of its own), the largest branch and the smallest one. The budget is one and a half times the largest
branch's latency on the free processor; the monitor's target is four fifths of that, because it judges by the
median. The load makes inferences take some 1.7 times longer: too long for the largest branch, and not for the
smallest, which has a third of the largest one's latency, or less. For each:

- `within`: the share of inferences within the budget; `within_loaded`, of those under the load;
- `accuracy`: of the branches that ran, the mean over all inferences.

`monitor_accuracy_share` is the share that the monitor keeps of the largest branch's advantage in accuracy
over the smallest; a monitor that never switches keeps 0.

`recovery_seconds` is the longest time after a change of the load until nine of ten inferences of the next
half second were within the budget. `failed` counts inferences that failed or gave a result of no branch.
`growth_mib` is the growth of the process in a minute (`--soak SECONDS`) of inferences and switches.

`--packages DIR` keeps the packages, and reuses those that exist; a quick run has its own. On a busy machine,
put `chrt --reset-on-fork --fifo 1` before the command, so that other programs take nothing from the
inferences.
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
from mistify_client.runtime.model import PortedModel, load
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

#: Bursts that two latencies are compared by, and inferences of each.
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
    """Return the porting of a small MobileNet with random weights: tuning the source trains it."""
    path = directory / "depthwise.keras"
    mobilenet().save(path)
    files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
    settings = {"learning_rate": 0.05}
    return Porting(ModelSource(path=str(path)), files, directory, settings)


def _chosen(count: int) -> range:
    """Return which branches of the largest package a package with fewer branches has."""
    return range(0, COUNTS[-1], (COUNTS[-1] - 1) // (count - 1))


def _package_figures(package: Path, alone: Sequence[Path]) -> dict[str, float]:
    """Return a package's costs beyond its own network, and the time of its branches and of a switch."""
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
    """Return the bytes of the file, nearly all of which are weights."""
    return (package / "serve.tflite").stat().st_size


def _ratio(alone: Callable[[], object], inside: Callable[[], object]) -> float:
    """Return the ratio of two durations: the median over bursts in turn."""
    ratios = []
    for _ in range(_ROUNDS):
        a, b = (median(timed(call) for _ in range(_RUNS)) for call in (alone, inside))
        ratios.append(b / a)
    return median(ratios)


def _switch_seconds(model: PortedModel, features: npt.NDArray[Any], rounds: int = 200) -> float:
    """Return the seconds of a switch and the first inference after it, less those of another inference."""
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
    parser.add_argument("--packages", type=Path, metavar="DIR", help="keep packages here, take what is there")
    parser.add_argument("--network", choices=_NETWORKS, help="port only this one")
    parser.add_argument("--soak", type=float, default=60.0, metavar="SECONDS", help="how long to soak")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the latencies into this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("device.switching", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
