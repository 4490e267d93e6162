"""Subnets of AdaptiveNet's supernet compared with other networks trained equally long (AdaptiveNet 7.2, 7.5).

`python -m benchmarks.elastic.quality --data DIR [--network {mobilenet13,resnet20}] [--seeds N ...] [--quick]
[--json FILE]`

A network is trained from scratch on CIFAR-10's training file, with flips and shifts, and ported to ten goals
between 0.9 and 0.4 of its multiply-adds. The sides are `adaptivenet`; `adaptivenet` with only shrunk blocks,
as in LegoDNN, and equally many training steps; for the MobileNet, also ablations of each of the two stages,
with its steps given to the other stage; and `morphnet`, with each goal adapted from the previous one.
Accuracies are measured on the test file. Times are CPU times, with one thread, in one warm worker, without
training the network, testing and packaging.

DIR has `cifar10/train.npz` and `cifar10/test.npz`. `--quick` uses few steps, three goals and one seed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.networks import NETWORKS
from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run_with_one_thread,
    seeds_of,
)
from benchmarks.harness.worker import TEST, TRAIN, Porting, Reached
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify_server.tasks.sources import DataSource, ModelSource

LARGEST, SMALLEST = 0.9, 0.4

ADAPTIVENET, SHRUNK, MORPHNET = "adaptivenet", "shrunk alone", "morphnet"
NO_DISTILLING, NO_PATHS = "without distillation", "without paths"

#: The network that is also ported without each of the stages.
ABLATED: Final = "mobilenet13"

TARGETS: Final[dict[str, Target]] = {
    f"{network}_{figure}": {"what": f"{network}: {what}", bound: value, "full_run_only": True}  # type: ignore[misc]
    for network in NETWORKS
    for figure, what, bound, value in (
        ("least_gained_over_shrunk", "smallest accuracy gain over shrunk blocks alone, points", "min", 0.0),
        ("gained_over_shrunk_at_least", "accuracy gain over shrunk blocks alone at 0.4x, points", "min", 2.0),
        ("points_below_morphnet", "largest accuracy gap below `morphnet`, points", "max", 1.5),
        ("share_of_morphnet_seconds", "time relative to `morphnet`", "max", 0.45),
    )
}


#: Augmentation for training from scratch: an untrained network cannot determine what suits its data.
_CHANGES: Final = Augmentation(flip=True, crop=4)

#: Width of the tables in characters: a narrower terminal would truncate digits.
_WIDTH: Final = 110


class Extent(NamedTuple):
    """Goals and training steps: of the source, of a supernet's two stages, and of MorphNet for each goal."""

    goals: int
    source_steps: int
    distil_steps: int
    path_steps: int
    morphnet_steps: int


FULL: Final = Extent(10, 4_800, 600, 2_400, 1_000)
QUICK: Final = Extent(3, 60, 20, 20, 20)


class Side(NamedTuple):
    """The results of one side, largest goal first, and the seconds for all goals."""

    reached: Sequence[Reached]
    seconds: float


def measure(options: Namespace) -> Figures:
    """Port with each seed, print the tables and return the medians."""
    data = data_with((TRAIN, TEST), options)
    extent = QUICK if options.quick else FULL
    figures: dict[str, float] = {}
    for network in [options.network] if options.network else NETWORKS:
        runs = []
        for seed in seeds_of(options):
            runs.append(ported(network, data, extent, seed))
            Console(width=_WIDTH).print(_table(f"{network}, seed {seed}", runs[-1]))
        figures |= {f"{network}_{name}": figure for name, figure in figures_of(runs).items()}
    return figures


def ported(network: str, data: Path, extent: Extent, seed: int) -> dict[str, Side]:
    """Train a network, and port it to all goals on each side."""
    shares = [float(share) for share in np.geomspace(LARGEST, SMALLEST, extent.goals)]
    with TemporaryDirectory() as directory:
        root = Path(directory)
        NETWORKS[network]().save(root / "network.keras")
        files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
        settings = {"source_steps": extent.source_steps, "learning_rate": 0.05, "seed": seed}
        changed = files.model_copy(update={"settings": DataSettings(augment=_CHANGES)})
        source = Porting(ModelSource(path=str(root / "network.keras")), changed, root / "source", settings)
        Console(stderr=True).print(f"{network}, seed {seed}: {source.accuracy:.1f} %")
        distil, paths = extent.distil_steps, extent.path_steps
        supernets: dict[str, dict[str, object]] = {
            ADAPTIVENET: {},
            SHRUNK: {"merge": []},
        }
        if network == ABLATED:
            supernets[NO_DISTILLING] = {"distil_steps": 0, "path_steps": distil + paths}
            supernets[NO_PATHS] = {"distil_steps": distil + paths, "path_steps": 0}
        sides = {}
        for number, (name, changes) in enumerate(supernets.items()):
            own = {"source_steps": 0, "seed": seed, "distil_steps": distil, "path_steps": paths, **changes}
            make = partial(
                Porting, source.tuned, files, root / str(number), own, algorithm=ADAPTIVENET, least=SMALLEST
            )
            sides[name] = side_of(make, shares)
        make = partial(Porting, source.tuned, files, root / MORPHNET, {"source_steps": 0, "seed": seed})
        sides[MORPHNET] = side_of(make, shares, extent.morphnet_steps)
        return sides


def side_of(make: Callable[[], Porting], shares: Sequence[float], steps: int | None = None) -> Side:
    """Port to all goals, and test the networks; the seconds do not include the tests.

    Args:
        make: Prepares the porting; the seconds include it.
        shares: The goals, largest first.
        steps: Training steps per goal; None for the number in the settings.
    """
    start = process_time()
    porting = make()
    networks = porting.descended(dict.fromkeys(shares, steps))
    seconds = process_time() - start
    return Side([porting.reached(networks[share], steps or 0) for share in shares], seconds)


def figures_of(runs: Sequence[Mapping[str, Side]]) -> dict[str, float]:
    """Return medians over the seeds."""

    def accuracies(run: Mapping[str, Side], side: str) -> list[float]:
        return [reached.accuracy for reached in run[side].reached]

    def gains(run: Mapping[str, Side], other: str) -> list[float]:
        own = accuracies(run, ADAPTIVENET)
        return [mine - theirs for mine, theirs in zip(own, accuracies(run, other), strict=True)]

    figures = {
        "least_gained_over_shrunk": median(min(gains(run, SHRUNK)) for run in runs),
        "gained_over_shrunk_at_least": median(gains(run, SHRUNK)[-1] for run in runs),
        "points_below_morphnet": median(-min(gains(run, MORPHNET)) for run in runs),
        "share_of_morphnet_seconds": median(run[ADAPTIVENET].seconds / run[MORPHNET].seconds for run in runs),
    }
    for side in runs[0]:
        figures[f"{side.replace(' ', '_')}_mean"] = median(mean(accuracies(run, side)) for run in runs)
        figures[f"{side.replace(' ', '_')}_seconds"] = median(run[side].seconds for run in runs)
    return figures


def _table(title: str, sides: Mapping[str, Side]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("side", *(f"{reached.share:.2f}" for reached in sides[MORPHNET].reached), "CPU s"):
        table.add_column(column, justify="right")
    for name, side in sides.items():
        accuracies = (f"{reached.accuracy:.1f}" for reached in side.reached)
        table.add_row(name, *accuracies, f"{side.seconds:,.0f}")
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=[*NETWORKS], help="port only this network")
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("elastic.quality", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
