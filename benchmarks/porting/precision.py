"""Accuracy, size and latency of packages at each precision, compared with float32.

`python -m benchmarks.porting.precision --data DIR [--seeds N ...] [--quick] [--json FILE]`

MLPerf Tiny's ResNet-8 on CIFAR-10 is tuned on the data, and adapted to half of its multiply-adds. Both
checkpoints are packaged at every precision by the server's own task. Accuracy is measured in LiteRT on the
test data. Latency is the median of the fastest burst of single inferences with one thread. int8-qat trains
during packaging. It is compared with the float32 package of the same checkpoint after the same number of
additional training steps; the effect of these steps on float32 is a separate figure. Everything is repeated
with each seed, and figures are means over the seeds, because the losses of a single seed are no larger than
their variation.

Losses are also given on the validation data: the server's assumptions about precisions are based on these.

DIR has `cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`.
`--quick` trains with few steps and one seed: it shows that everything works, with far less accurate networks.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)
from benchmarks.harness.worker import FILES, Packaged, Porting, resnet8
from mistify.costs.quantization import STORED, Quantization

#: Multiply-adds as shares of the source's, and training steps for the half in a full run.
SHARES: Final = (1.0, 0.5)
STEPS: Final = 1_000
SETTINGS: Final[dict[str, object]] = {"source_steps": 2_400}
QUICK_STEPS: Final = 40
QUICK_SETTINGS: Final[dict[str, object]] = {"source_steps": 40}

#: Additional training steps of int8-qat, and of the float32 network that it is compared with.
MORE_STEPS: Final = 600
QUICK_MORE_STEPS: Final = 20


#: Maximum accuracy loss in points against float32 with the same number of training steps.
TARGETS: Final[dict[str, Target]] = {
    f"{precision}_lost_points_at_{share}": {
        "what": f"{precision} at {share}: accuracy loss against float32, points",
        "max": most,
        "full_run_only": True,
    }
    for precision, most in (("int8", 1.0), ("int8-qat", 0.5))
    for share in ("1x", "0.5x")
}


class Row(NamedTuple):
    """A package of a checkpoint.

    Attributes:
        share: Multiply-adds, as a share of the source's.
        package: The package's figures.
        trained_on: Whether the checkpoint had additional training, or the package was trained during
            packaging.
    """

    share: float
    precision: Quantization
    package: Packaged
    trained_on: bool = False

    @property
    def name(self) -> str:
        """Return the precision as text, and whether a float32 network had additional training."""
        further = self.trained_on and self.precision is Quantization.NONE
        return f"{self.precision.value}, trained on" if further else self.precision.value


class Lost(NamedTuple):
    """Points of accuracy lost on the test file and on the validation data."""

    test: float
    validation: float


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.precision", TARGETS, measure, argv, add_options)


def measure(options: Namespace) -> Figures:
    """Package both checkpoints at all precisions with each seed, print the tables and return the figures."""
    data = data_with(FILES, options)
    more = QUICK_MORE_STEPS if options.quick else MORE_STEPS
    settings = {**(QUICK_SETTINGS if options.quick else SETTINGS), "tune_steps": more}
    steps = QUICK_STEPS if options.quick else STEPS
    runs = []
    for seed in seeds_of(options):
        with TemporaryDirectory() as directory:
            rows = list(_rows(resnet8(data, Path(directory), {**settings, "seed": seed}), steps, more))
        Console().print(_table(rows, seed))
        for row in rows:
            if row.package.note:
                Console().print(f"{row.share:g}x {row.package.note}", markup=False, soft_wrap=True)
        runs.append(figures_of(rows))
    return {} if options.quick else {name: mean(run[name] for run in runs) for name in runs[0]}


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


def figures_of(rows: Sequence[Row]) -> Figures:
    """Return the points of accuracy that each precision loses, on the test file and on validation data.

    `trained_on_gained_points` are the points that float32 gains on the test file through the additional
    steps; `halving_validation_lost_points` those that the half loses on validation data.
    """
    figures = {}
    for row in rows:
        if row.precision is not Quantization.NONE:
            lost = lost_by(row, rows)
            figures[f"{row.precision.value}_lost_points_at_{row.share:g}x"] = lost.test
            figures[f"{row.precision.value}_validation_lost_points_at_{row.share:g}x"] = lost.validation
        elif row.trained_on:
            before = _float32(row.share, rows, trained_on=False)
            figures[f"trained_on_gained_points_at_{row.share:g}x"] = -_lost(before, row).test
    whole, half = (_float32(share, rows, trained_on=False) for share in SHARES)
    figures["halving_validation_lost_points"] = _lost(whole, half).validation
    return figures


def lost_by(row: Row, rows: Sequence[Row]) -> Lost:
    """Return the points that a package loses against the float32 package with equally many training steps."""
    return _lost(_float32(row.share, rows, trained_on=row.trained_on), row)


def _rows(porting: Porting, steps: int, more: int) -> Iterator[Row]:
    for share in SHARES:
        checkpoint = porting.checkpoint(share, steps)
        for precision in STORED:
            yield Row(share, precision, porting.package(checkpoint, precision))
        further = porting.trained_on(checkpoint, share, more)
        yield Row(share, Quantization.NONE, porting.package(further, Quantization.NONE), trained_on=True)
        aware = porting.package(checkpoint, Quantization.INT8_QAT)
        yield Row(share, Quantization.INT8_QAT, aware, trained_on=True)


def _float32(share: float, rows: Sequence[Row], *, trained_on: bool) -> Row:
    return next(row for row in rows if row[:2] == (share, Quantization.NONE) and row.trained_on == trained_on)


def _lost(before: Row, after: Row) -> Lost:
    a, b = before.package, after.package
    return Lost(100 * (a.accuracy - b.accuracy), 100 * (a.validation_accuracy - b.validation_accuracy))


def _table(rows: Sequence[Row], seed: int) -> Table:
    title = f"ResNet-8 in LiteRT by its share of multiply-adds, 1 thread, seed {seed}"
    table = Table(title=title, title_justify="left")
    for column in (
        "share",
        "precision",
        "accuracy",
        "lost points",
        "on validation data",
        "bytes",
        "foretold",
        "latency, us",
    ):
        table.add_column(column, justify="left" if column == "precision" else "right")
    for row in rows:
        lost = [] if row.precision is Quantization.NONE else list(lost_by(row, rows))
        table.add_row(
            f"{row.share:g}x",
            row.name,
            f"{row.package.accuracy:.2%}",
            *([f"{points:.2f}" for points in lost] or ["", ""]),
            f"{row.package.size:,}",
            f"{row.package.foretold_size:,.0f}",
            f"{1000 * row.package.latency_ms:.0f}",
            end_section=row.precision is Quantization.INT8_QAT,
        )
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
