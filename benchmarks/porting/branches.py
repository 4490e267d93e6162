"""The accuracy of a package's branches, against networks of their own and at the size of the package.

`python -m benchmarks.porting.branches --data DIR [--seeds N ...] [--quick] [--json FILE]`

MLPerf Tiny's ResNet-8 is tuned on CIFAR-10 and ported to half of its multiply-adds, with three branches at
half, once and twice that budget. The largest, which costs as much as the source, is compared with the network
of a single goal of the same cost. Steps are the default ones. Accuracies are those on the test data, means
over the seeds; the size is that of `serve.tflite`. `--quick` trains with few steps, of one seed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

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
from benchmarks.harness.worker import FILES, resnet8

SHARE: Final = 0.5
MULTIPLES: Final[Mapping[str, float]] = {"smallest": 0.5, "goal": 1.0, "largest": 2.0}

_QUICK_SETTINGS: Final[dict[str, object]] = {
    "source_steps": 60, "adapt_steps": 40, "tune_steps": 40, "max_steps": 120
}  # fmt: skip

TARGETS: Final[dict[str, Target]] = {
    "largest_lost": {"max": 1.0, "full_run_only": True},
    # With one seed, when the goal's first layers were the base.
    "goal": {"min": 77.7, "full_run_only": True},
    "smallest": {"min": 71.2, "full_run_only": True},
    "package_bytes": {"max": 580_136},
}


def measure(options: Namespace) -> Figures:
    """Port with every seed, print the table and return the figures."""
    data = data_with(FILES, options)
    runs = []
    for seed in seeds_of(options):
        runs.append(_ported(data, {"seed": seed, **(_QUICK_SETTINGS if options.quick else {})}))
        print(f"seed {seed}:", runs[-1], file=sys.stderr, flush=True)
    Console().print(_table(seeds_of(options), runs))
    figures = figures_of(runs)
    return {name: of for name, of in figures.items() if not options.quick or name == "package_bytes"}


def figures_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return means over the runs, and the loss of the largest branch against a network of its own."""
    figures = {name: mean(of[name] for of in runs) for name in runs[0]}
    lost = mean(of["alone"] - of["largest"] for of in runs)
    return {**figures, "largest_lost": lost}


def _ported(data: Path, settings: Mapping[str, object]) -> dict[str, float]:
    """Return the accuracies of the source, of a network of its own, and of the branches, and the size."""
    with TemporaryDirectory() as directory:
        porting = resnet8(data, Path(directory), settings)
        goal = porting.checkpoint(SHARE)
        made = porting.branches(goal, SHARE, list(MULTIPLES.values()))
        package = porting.write_package(goal, Path(directory) / "package", made)
        return {
            "source": porting.accuracy,
            "alone": porting.case(SHARE * MULTIPLES["largest"]).accuracy,
            "goal_alone": porting.tested(goal.artifact),
            **{
                name: porting.tested(branch.checkpoint)
                for name, branch in zip(MULTIPLES, made.branches, strict=True)
            },
            "package_bytes": (package / "serve.tflite").stat().st_size,
        }


def _table(seeds: Sequence[int], runs: Sequence[Mapping[str, float]]) -> Table:
    table = Table(title="ResNet-8 at half of its multiply-adds, with three branches", title_justify="left")
    for column in ("seed", *runs[0]):
        table.add_column(column.replace("_", " "), justify="right")
    for seed, of in zip(seeds, runs, strict=True):
        table.add_row(
            str(seed), *(f"{value:,.4g}" if value <= 100 else f"{value:,.0f}" for value in of.values())
        )
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.branches", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
