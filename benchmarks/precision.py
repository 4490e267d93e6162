"""Accuracy, size and speed of packages at each precision, against float32 packages of the same checkpoints.

`python -m benchmarks.precision --data DIR [--quick] [--json FILE]`

MLPerf Tiny's ResNet-8 on CIFAR-10, tuned on the data, as it is and adapted to half of its multiply-adds.
Each of the two checkpoints is packaged at every precision by the server's own task; accuracy is what LiteRT
makes of the test data, latency the median of its quietest burst of single inferences on one thread.

DIR has `cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`.
`--quick` trains with few steps: it shows that all works, its networks are far less accurate.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figures, Target, add_data_option, data_with, run
from benchmarks.porting import FILES, Packaged, Porting, resnet8
from mistify.costs.quantization import STORED, Quantization

#: Multiply-adds as shares of the source's, and training steps of the half in a full run.
SHARES: Final = (1.0, 0.5)
STEPS: Final = 1_000
SETTINGS: Final[dict[str, object]] = {"source_steps": 2_400, "tune_steps": 600}
QUICK_STEPS: Final = 40
QUICK_SETTINGS: Final[dict[str, object]] = {"source_steps": 40, "tune_steps": 20}

#: Points of accuracy that are lost against float32.
TARGETS: Final[dict[str, Target]] = {
    "int8_lost_points_at_1x": {"max": 1.0, "full_run_only": True},
    "int8_lost_points_at_0.5x": {"max": 1.0, "full_run_only": True},
    "int8-qat_lost_points_at_1x": {"max": 0.5, "full_run_only": True},
    "int8-qat_lost_points_at_0.5x": {"max": 0.5, "full_run_only": True},
}


class Row(NamedTuple):
    """A package of a checkpoint."""

    share: float
    precision: Quantization
    package: Packaged


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("precision", TARGETS, measure, argv, add_data_option)


def measure(options: Namespace) -> Figures:
    """Package both checkpoints at all precisions, print the table and return the figures."""
    data = data_with(FILES, options)
    settings = QUICK_SETTINGS if options.quick else SETTINGS
    steps = QUICK_STEPS if options.quick else STEPS
    with TemporaryDirectory() as directory:
        rows = list(_rows(resnet8(data, Path(directory), settings), steps))
    Console().print(_table(rows))
    for row in rows:
        if row.package.note:
            Console().print(f"{row.share:g}x {row.package.note}", markup=False, soft_wrap=True)
    return {} if options.quick else figures_of(rows)


def figures_of(rows: Sequence[Row]) -> Figures:
    """Return the points of accuracy that each precision loses."""
    losses = {f"{row.precision.value}_lost_points_at_{row.share:g}x": _lost(row, rows) for row in rows}
    return {figure: lost for figure, lost in losses.items() if lost is not None}


def _rows(porting: Porting, steps: int) -> Iterator[Row]:
    for share in SHARES:
        checkpoint = porting.checkpoint(share, steps)
        for precision in [*STORED, Quantization.INT8_QAT]:
            yield Row(share, precision, porting.package(checkpoint, precision))


def _lost(row: Row, rows: Sequence[Row]) -> float | None:
    """Return the points of accuracy lost against the float32 package; None for that package."""
    if row.precision is Quantization.NONE:
        return None
    float32 = next(
        baseline
        for baseline in rows
        if baseline.share == row.share and baseline.precision is Quantization.NONE
    )
    return 100 * (float32.package.accuracy - row.package.accuracy)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="ResNet-8 in LiteRT by its share of multiply-adds, 1 thread", title_justify="left")
    for column in (
        "share",
        "precision",
        "accuracy",
        "lost points",
        "bytes",
        "foretold",
        "latency, us",
    ):
        table.add_column(column, justify="left" if column == "precision" else "right")
    for row in rows:
        lost = _lost(row, rows)
        table.add_row(
            f"{row.share:g}x",
            row.precision.value,
            f"{row.package.accuracy:.2%}",
            "" if lost is None else f"{lost:.2f}",
            f"{row.package.size:,}",
            f"{row.package.foretold_size:,.0f}",
            f"{1000 * row.package.latency_ms:.0f}",
            end_section=row.precision is Quantization.INT8_QAT,
        )
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
