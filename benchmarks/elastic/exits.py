"""Early exits: multiply-adds saved within an allowed loss, against a smaller network of the same cost.

`python -m benchmarks.elastic.exits --data DIR [--network {mobilenet13,resnet20}] [--seeds N ...]
[--checkpoint DIR] [--quick] [--json FILE]`

A network is trained from scratch on CIFAR-10's training file, with flips and shifts, and packaged with exits
within losses of 0.5 and 1 point. Heads learn from a part of the training file, and another part decides where
they are and from which confidence they answer. The client then answers the test file, one image after the
other. Savings are the share of the multiply-adds that it does not need, with all heads counted; without exits
within a loss they are 0. Losses are the points of accuracy that the whole network has more. Times are
processor times, with one thread, of the same images without and with exits, alternately.

On the other side, the network is ported to as many multiply-adds as exits within 1 point need, with the
default algorithm and number of steps. The network itself is trained for as many additional steps, because its
first training does not converge, and its gain is subtracted from that of the smaller network.

The data DIR has `cifar10/train.npz` and `cifar10/test.npz`. `--checkpoint DIR` keeps the trained networks and
reuses them. `--quick` uses a small ResNet, few images and steps, and large losses; its results say nothing
about the targets.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple

import keras
import numpy as np
from rich.table import Table

import mistify_client
from benchmarks.elastic.networks import NETWORKS
from benchmarks.elastic.trained import add_options, measure_networks, trained_porting
from benchmarks.harness.run import (
    Figures,
    Target,
    paired_ratio,
    run_with_one_thread,
)
from benchmarks.harness.worker import TEST, TRAIN
from executors.data import Dataset
from mistify.config.package.exits import ExitsConfig
from mistify.costs.budget import FLOPS
from mistify.package.exits import ExitStore
from mistify.package.opened import Package
from mistify_client import PortedModel
from mistify_client.runtime.inputs import Array

TARGETS: Final[dict[str, Target]] = {
    f"{network}_{figure}": {"what": f"{network}: {what}", bound: value, "full_run_only": True}  # type: ignore[misc]
    for network in NETWORKS
    for figure, what, bound, value in (
        ("saved_at_0.5", "multiply-adds saved within 0.5 points, percent", "min", 15.0),
        ("saved_at_1", "multiply-adds saved within 1 point, percent", "min", 25.0),
        ("lost_at_0.5", "accuracy lost within 0.5 points, points", "max", 0.5),
        ("lost_at_1", "accuracy lost within 1 point, points", "max", 1.0),
        ("gained_over_smaller", "accuracy gain over a smaller network of the same cost, points", "min", 0.0),
    )
}

#: Test images that the client answers in one call.
_BATCH: Final = 100

#: Largest difference of equal losses in points.
_ROUNDING: Final = 1e-6

#: Test images for times, and repetitions.
_TIMED: Final = 200
_REPETITIONS: Final = 5


class Extent(NamedTuple):
    """The size of a run.

    Attributes:
        source: Training steps of the source.
        smaller: Training steps of the smaller network, and additional ones of the source.
        losses: Allowed losses in points, ascending.
        examples: Number of training images, and of test images; None for all.
    """

    source: int
    smaller: int
    losses: tuple[float, ...]
    examples: int | None


FULL: Final = Extent(1_600, 600, (0.5, 1.0), None)
QUICK: Final = Extent(20, 4, (10.0, 20.0), 600)


class Side(NamedTuple):
    """The result of exits within a loss.

    Attributes:
        saved: Saved multiply-adds on the test file, in percent.
        lost: Accuracy lost against the whole network on the test file, in points.
        faster: Saved processor time, in percent.
    """

    saved: float = 0.0
    lost: float = 0.0
    faster: float = 0.0


class Run(NamedTuple):
    """The results with one seed.

    Attributes:
        source: Accuracy of the network on the test file, in percent.
        exits: Allowed loss in points -> the result of exits.
        smaller: The points that the smaller network loses on the test file.
        gained: The points that the network gains by as many additional training steps.
    """

    source: float
    exits: Mapping[float, Side]
    smaller: float
    gained: float


def measure(options: Namespace) -> Figures:
    """Measure with each seed, print the tables and return the medians."""
    extent = QUICK if options.quick else FULL
    return measure_networks(
        options, partial(measured, extent=extent, checkpoint=options.checkpoint), _tables, figures_of
    )


def measured(
    network: keras.Model, data: Path, seed: int, *, extent: Extent, checkpoint: Path | None = None
) -> Run:
    """Train a network, and measure its exits and the smaller network.

    Args:
        checkpoint: The directory for trained networks; None to forget them.
    """
    with TemporaryDirectory() as directory:
        work = Path(directory)
        data = data if extent.examples is None else _part_of(data, work / "data", extent.examples)
        porting = trained_porting(network, data, work, steps=extent.source, seed=seed, kept=checkpoint)
        own, test = porting.checkpoint(1), porting.test()
        config = ExitsConfig(loss=tuple(loss / 100 for loss in extent.losses))
        package = porting.write_package(own, work / "package", exits=config)
        exits = measured_exits(package, extent.losses, test)
        share = 1 - exits[extent.losses[-1]].saved / 100
        smaller = porting.checkpoint(share, extent.smaller)
        longer = porting.trained_on(own, 1.0, extent.smaller)
        accuracy = porting.accuracy
        return Run(
            accuracy,
            exits,
            accuracy - porting.tested(smaller.artifact),
            porting.tested(longer.artifact) - accuracy,
        )


def _part_of(data: Path, directory: Path, examples: int) -> Path:
    """Return a directory with the first training and test images."""
    for name in (TRAIN, TEST):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        np.savez(directory / name, **{key: of[:examples] for key, of in np.load(data / name).items()})
    return directory


def figures_of(runs: Sequence[Run]) -> dict[str, float]:
    """Return medians over the seeds."""
    figures = {
        f"{figure}_at_{loss:g}": median(getattr(run.exits[loss], figure) for run in runs)
        for loss in runs[0].exits
        for figure in Side._fields
    }
    own = [run.exits[max(run.exits)].lost for run in runs]
    others = [run.smaller + run.gained for run in runs]
    gained = median(other - one for one, other in zip(own, others, strict=True))
    return {"source": median(run.source for run in runs), **figures, "gained_over_smaller": gained}


def measured_exits(package: Path, losses: Sequence[float], test: Dataset) -> dict[float, Side]:
    """Return the results of a package's exits by allowed loss in points, ascending."""
    model = mistify_client.load(package)
    print(model.manifest.note, file=sys.stderr, flush=True)
    (images,), (classes,) = test.inputs.values(), test.targets.values()
    whole, _ = _answers(model, model.wanted, images)
    store = ExitStore.of(Package.open(package))
    multiply_adds = [] if store is None else [stage.multiply_adds for stage in store.stages]
    offered = {0.0: Side()}
    for option in model.options:
        if option.exits is not None:
            answers, stages = _answers(model, option.id, images)
            share = np.take(multiply_adds, stages).mean() / model.manifest.achieved[FLOPS]
            lost = np.mean(whole == classes) - np.mean(answers == classes)
            faster = _saved_time(model, option.id, images[:_TIMED])
            offered[100 * option.exits.loss] = Side(100 * float(1 - share), 100 * float(lost), faster)
    return {loss: best_within(offered, loss) for loss in losses}


def best_within(offered: Mapping[float, Side], loss: float) -> Side:
    """Return the result with the largest loss, in points, that is within an allowed one."""
    return offered[max(each for each in offered if each <= loss + _ROUNDING)]


def _answers(model: PortedModel, option: str, images: Array) -> tuple[Array, list[int]]:
    """Return the class of each image by an option, and the stages that answered."""
    model.switch(option)
    classes, stages = [], list[int]()
    for start in range(0, len(images), _BATCH):
        classes.append(np.asarray(model(images[start : start + _BATCH])).argmax(1))
        stages.extend(model.answered)
    return np.concatenate(classes), stages


def _saved_time(model: PortedModel, option: str, images: Array) -> float:
    """Return the processor time that an option saves, in percent."""

    def run_all(option: str) -> None:
        model.switch(option)
        for number in range(len(images)):
            model(images[number : number + 1])

    sides = partial(run_all, model.options[0].id), partial(run_all, option)
    return 100 * (1 - paired_ratio(*sides, _REPETITIONS, process_time).ratio)


def _tables(title: str, run: Run) -> list[Table]:
    table = Table(title=f"{title}: {run.source:.1f} % on the test data", title_justify="left")
    for column in ("allowed loss", "multiply-adds saved", "processor time saved", "points lost"):
        table.add_column(column, justify="right")
    for loss, side in run.exits.items():
        table.add_row(f"{loss:g} points", f"{side.saved:.1f} %", f"{side.faster:.1f} %", f"{side.lost:.2f}")
    trained = f"{run.smaller:.2f} + {run.gained:.2f}"
    table.add_row("smaller network", f"{max(side.saved for side in run.exits.values()):.1f} %", "", trained)
    return [table]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("elastic.exits", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
