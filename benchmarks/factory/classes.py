"""Slices for three of ten classes, compared with a network that is pruned for all of them (NN-Factory 5.2).

`python -m benchmarks.factory.classes --data DIR [--quick] [--json FILE] [--seeds N ...]`

Each of 120 tasks is to tell three of CIFAR-10's ten classes apart. MLPerf Tiny's ResNet-8, tuned on all
classes, becomes a supernet that is trained for 96 tasks with the default settings; 24 are never trained. A
slice has the highest expected quality within a quarter of the network's multiply-adds. The rival is a network
of `morphnet` within the same limit, made from the same tuned network, without the rows of other classes in
its last layer: as it is for each task, and for a few tasks after 300 further training steps on examples of
their classes, with the tuned network as teacher.

Accuracies are measured on the test file, and those of slices with the masked supernet. Times are processor
times: of a slice on a device (`benchmarks/factory/slice_time.py`), and of tuning the rival for a task in a
warm worker, without its package. Latencies are those of the first task's networks with LiteRT at one thread.

DIR has the files of CIFAR-10 and MLPerf Tiny. `--quick` has few steps and one seed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.factory.class_networks import (
    SHARE,
    TASKS,
    Bools,
    Floats,
    cut_accuracies,
    held_out,
    latency_shares,
    share_of,
    slice_accuracies,
    slice_of,
    supernet_of,
    time_of_slices,
    tuned_accuracy,
)
from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run_with_one_thread,
    seeds_of,
)
from benchmarks.harness.worker import FILES, resnet8
from executors.algorithms.nnfactory.params import NNFactoryParams

TARGETS: Final[dict[str, Target]] = {
    "known_above": {
        "what": "trained tasks with a slice above the untuned rival, share",
        "min": 0.7,
        "full_run_only": True,
    },
    "unseen_above": {
        "what": "tasks that were not trained with a slice above the untuned rival, share",
        "min": 0.6,
        "full_run_only": True,
    },
    "below_tuned": {
        "what": "accuracy of slices below the tuned rival, mean, points",
        "max": 2.0,
        "full_run_only": True,
    },
    "time_share": {
        "what": "time of a slice relative to tuning the rival",
        "max": 0.001,
        "full_run_only": True,
    },
    "most_multiply_adds": {"what": "most multiply-adds of a slice, share", "max": SHARE},
}


class Extent(NamedTuple):
    """The amount of training.

    Attributes:
        source_steps: Steps that tune the network on all classes.
        morphnet_steps: Steps of the rival for all classes.
        tuned_steps: Further steps of the rival for a task.
        tuned: Number of trained tasks that the rival is tuned for, and of unseen ones.
        settings: Settings of `nnfactory`.
    """

    source_steps: int
    morphnet_steps: int
    tuned_steps: int
    tuned: int
    settings: Mapping[str, float]


FULL: Final = Extent(1200, 900, 300, 3, {})
QUICK: Final = Extent(20, 20, 20, 1, {"gate_steps": 16})


@dataclass(frozen=True)
class Compared:
    """Both sides with one seed; accuracies are in per cent.

    Attributes:
        unseen: Whether each task was not trained [120].
        slices: Accuracy of the slice of each task [120].
        untuned: Accuracy of the rival for each task [120].
        whole: Accuracy of the whole tuned network for each task [120].
        tuned: Accuracy of the tuned rival by the number of the task.
        multiply_adds: Multiply-adds of each slice, as a share of the whole network's [120].
        costs: Further figures by name.
    """

    unseen: Bools
    slices: Floats
    untuned: Floats
    whole: Floats
    tuned: Mapping[int, float]
    multiply_adds: Floats
    costs: Mapping[str, float]

    @property
    def figures(self) -> dict[str, float]:
        """The figures by name."""
        parts = {"known": ~self.unseen, "unseen": self.unseen}
        sides = {"": self.slices, "untuned_": self.untuned, "whole_": self.whole}
        tuned, of_tuned = mean(self.tuned.values()), self.slices[[*self.tuned]].mean()
        return {
            **{
                f"{side}{part}": float(accuracies[rows].mean())
                for side, accuracies in sides.items()
                for part, rows in parts.items()
            },
            **{
                f"{part}_above": float((self.slices > self.untuned)[rows].mean())
                for part, rows in parts.items()
            },
            "tuned": tuned,
            "of_tuned": float(of_tuned),
            "untuned_of_tuned": float(self.untuned[[*self.tuned]].mean()),
            "below_tuned": float(tuned - of_tuned),
            "most_multiply_adds": float(self.multiply_adds.max()),
            **self.costs,
        }


def measure(options: Namespace) -> Figures:
    """Compare with each seed, print the tables and return the means over the seeds."""
    data = data_with(FILES, options)
    values_by_figure: dict[str, list[float]] = {}
    for seed in seeds_of(options):
        figures = compared(data, QUICK if options.quick else FULL, seed).figures
        Console().print(_table(f"seed {seed}", figures))
        for name, figure in figures.items():
            values_by_figure.setdefault(name, []).append(figure)
    most = "most_multiply_adds"
    means = {name: max(own) if name == most else mean(own) for name, own in values_by_figure.items()}
    return {most: means[most]} if options.quick else means


def compared(data: Path, extent: Extent, seed: int) -> Compared:
    """Train both sides, and test them on all tasks."""
    unseen = np.zeros(len(TASKS), bool)
    unseen[held_out(seed)] = True
    with TemporaryDirectory() as directory:
        settings = {"source_steps": extent.source_steps, "seed": seed}
        porting = resnet8(data, Path(directory), settings)
        test = porting.test()
        trained = [classes for classes, held in zip(TASKS, unseen, strict=True) if not held]
        params = NNFactoryParams.model_validate({**extent.settings, "seed": seed})
        supernet = supernet_of(porting, trained, params)
        chosen = [slice_of(supernet, classes) for classes in TASKS]
        rival = porting.checkpoint(SHARE, extent.morphnet_steps)
        tuned = {
            task: tuned_accuracy(porting, rival, TASKS[task], extent.tuned_steps, test)
            for part in (unseen, ~unseen)
            for task in np.flatnonzero(part)[:: part.sum() // extent.tuned][: extent.tuned].tolist()
        }
        networks = chosen[0].network(), porting.network(rival)
        slice_latency, rival_latency = latency_shares(porting.source(), networks)
        slice_seconds = time_of_slices(supernet)
        tuned_seconds = median(seconds for _, seconds in tuned.values())
        return Compared(
            unseen,
            slice_accuracies(supernet, chosen, test),
            cut_accuracies(porting.network(rival), test),
            cut_accuracies(porting.source(), test),
            {task: accuracy for task, (accuracy, _) in tuned.items()},
            np.array([share_of(supernet, one) for one in chosen]),
            {
                "untuned_multiply_adds": porting.reached(rival, extent.morphnet_steps).share,
                "latency": slice_latency,
                "untuned_latency": rival_latency,
                "slice_ms": 1e3 * slice_seconds,
                "tuned_seconds": tuned_seconds,
                "time_share": slice_seconds / tuned_seconds,
            },
        )


def _table(title: str, figures: Mapping[str, float]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("network", "known", "unseen", "tuned tasks", "multiply-adds", "latency"):
        table.add_column(column, justify="left" if column == "network" else "right")
    rows = {
        "whole, rows cut": ("whole_known", "whole_unseen", "", "", ""),
        "slice": ("known", "unseen", "of_tuned", "most_multiply_adds", "latency"),
        "above untuned, share": ("known_above", "unseen_above", "", "", ""),
        "morphnet, untuned": (
            *("untuned_known", "untuned_unseen", "untuned_of_tuned"),
            *("untuned_multiply_adds", "untuned_latency"),
        ),
        "morphnet, tuned": ("", "", "tuned", "untuned_multiply_adds", "untuned_latency"),
    }
    for row, names in rows.items():
        table.add_row(row, *(f"{figures[name]:.4g}" if name else "" for name in names))
    table.caption = f"slice: {figures['slice_ms']:.1f} ms, tuned: {figures['tuned_seconds']:.1f} s"
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("factory.classes", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
