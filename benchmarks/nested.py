"""Many goals from one training of nested networks, against the same goals case by case (paper 4.3).

`python -m benchmarks.nested --data DIR [--seeds N] [--quick] [--json FILE]`

ResNet-8 on CIFAR-10 is ported to 128 goals between 0.841 and 0.125 times its multiply-adds by `nested`. Eight
of them, evenly spread, are ported by `morphnet` from the same tuned source as well, each by itself with 300
steps, and stand for the others in its time. Accuracies are those of the eight on the test file. Times are of
the processor, with one thread, in one warm worker; tuning the source and packaging are on neither side.

DIR has `cifar10/train.npz`, `cifar10/test.npz` and `mlperf_tiny/resnet8_cifar10.h5`. `--quick` has 16 goals,
two of them by both, few steps and one seed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figures, Target, add_data_option, data_with, run
from benchmarks.porting import FILES, Porting, Reached, resnet8

LARGEST, SMALLEST = 0.841, 0.125

TARGETS: Final[dict[str, Target]] = {
    "times_faster": {"min": 12, "full_run_only": True},
    "points_below": {"max": 0.5, "full_run_only": True},
}

_SEEDS: Final = 3


class Extent(NamedTuple):
    """Goals, those of them that are ported by both, and the training steps of each side."""

    goals: int
    cases: int
    source_steps: int
    segment_steps: int
    case_steps: int


FULL: Final = Extent(128, 8, 600, 1_200, 300)
QUICK: Final = Extent(16, 2, 60, 60, 40)


class Sides(NamedTuple):
    """Both sides with one seed: seconds for all goals, and the goals that both have ported."""

    nested_seconds: float
    case_seconds: float
    nested: Sequence[Reached]
    cases: Sequence[Reached]


def measure(options: Namespace) -> Figures:
    """Port with each seed, print the tables and return the medians."""
    data = data_with(FILES, options)
    extent = QUICK if options.quick else FULL
    by_seed = [ported(data, extent, seed) for seed in range(1 if options.quick else options.seeds)]
    for seed, sides in enumerate(by_seed):
        Console().print(_table(seed, sides))
    below = [mean(case.accuracy for case in s.cases) - mean(n.accuracy for n in s.nested) for s in by_seed]
    return {
        "nested_seconds": median(sides.nested_seconds for sides in by_seed),
        "case_seconds": median(sides.case_seconds for sides in by_seed),
        "times_faster": median(sides.case_seconds / sides.nested_seconds for sides in by_seed),
        "accuracy": median(mean(reached.accuracy for reached in sides.nested) for sides in by_seed),
        "points_below": median(below),
    }


def ported(data: Path, extent: Extent, seed: int) -> Sides:
    """Port all goals by nested networks, and some case by case."""
    shares = [float(share) for share in np.geomspace(LARGEST, SMALLEST, extent.goals)]
    both = {shares[place] for place in np.linspace(0, extent.goals - 1, extent.cases).round().astype(int)}
    with TemporaryDirectory() as directory:
        root = Path(directory)
        morphnet = resnet8(data, root / "cases", {"source_steps": extent.source_steps, "seed": seed})
        cases, case_seconds = [], []
        for share in sorted(both, reverse=True):
            start = process_time()
            checkpoint = morphnet.checkpoint(share, extent.case_steps)
            case_seconds.append(process_time() - start)
            cases.append(morphnet.reached(checkpoint, extent.case_steps))
        settings = {"source_steps": 0, "segment_steps": extent.segment_steps, "seed": seed}
        start = process_time()
        many = Porting(
            morphnet.tuned, morphnet.data, root / "nested", settings, algorithm="nested", least=SMALLEST
        )
        checkpoints = many.descended(shares)
        nested_seconds = process_time() - start
        nested = [many.reached(checkpoints[share], 0) for share in sorted(both, reverse=True)]
        return Sides(nested_seconds, mean(case_seconds) * extent.goals, nested, cases)


def _table(seed: int, sides: Sides) -> Table:
    table = Table(
        title=f"seed {seed}: nested {sides.nested_seconds:,.0f} s, case by case {sides.case_seconds:,.0f} s",
        title_justify="left",
    )
    for column in ("multiply-adds", "nested", "case by case"):
        table.add_column(column, justify="right")
    for nested, case in zip(sides.nested, sides.cases, strict=True):
        table.add_row(f"{nested.share:.3f}", f"{nested.accuracy:.1f} %", f"{case.accuracy:.1f} %")
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="how many seeds (default: %(default)s)")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return run("nested", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
