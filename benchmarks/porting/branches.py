"""The accuracy of a package's branches and the size of the package, compared with separate networks.

`python -m benchmarks.porting.branches --data DIR [--seeds N ...] [--quick] [--json FILE]`

MLPerf Tiny's ResNet-8 is tuned on CIFAR-10 and ported to 0.4 of its multiply-adds, with three branches at
half, once and twice that budget, all of which are cut. The smallest and the largest branch are compared with
networks of separate goals at the same costs, and the size of the package with that of the three separate
packages. Steps have their default numbers. Accuracies are means over the seeds on the test data; sizes are
those of `serve.tflite`. `--quick` trains with few steps and one seed.
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

SHARE: Final = 0.4
MULTIPLES: Final[Mapping[str, float]] = {"smallest": 0.5, "goal": 1.0, "largest": 2.0}

#: The branches other than the goal's own network.
COMPARED: Final = ("smallest", "largest")

_QUICK_SETTINGS: Final[dict[str, object]] = {
    "source_steps": 60, "adapt_steps": 40, "tune_steps": 40, "max_steps": 120
}  # fmt: skip

TARGETS: Final[dict[str, Target]] = {
    **{
        f"{name}_lost": {
            "what": f"{name} of three branches: accuracy loss against a separate network, points",
            "max": 1.0,
            "full_run_only": True,
        }
        for name in COMPARED
    },
    "bytes_over_separate": {
        "what": "package size relative to three separate networks",
        "max": 1.0,
    },
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
    return {name: of for name, of in figures.items() if not options.quick or not name.endswith("_lost")}


def figures_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return means over the runs, and the losses of branches against separate networks."""
    figures = {name: mean(of[name] for of in runs) for name in runs[0]}
    lost = {f"{name}_lost": mean(of[f"{name}_alone"] - of[name] for of in runs) for name in COMPARED}
    over = mean(of["package_bytes"] / of["separate_bytes"] for of in runs)
    return {**figures, **lost, "bytes_over_separate": over}


def _ported(data: Path, settings: Mapping[str, object]) -> dict[str, float]:
    """Return the accuracies of the source, the branches and separate networks, and sizes."""
    with TemporaryDirectory() as directory:
        porting = resnet8(data, Path(directory) / "checkpoints", settings)
        goal = porting.checkpoint(SHARE)
        alone = {name: porting.checkpoint(SHARE * MULTIPLES[name]) for name in COMPARED}
        made = porting.branches(goal, SHARE, list(MULTIPLES.values()))
        package = porting.write_package(goal, Path(directory) / "package", made)
        separate = {
            name: porting.write_package(own, Path(directory) / name)
            for name, own in {"goal": goal, **alone}.items()
        }
        return {
            "source": porting.accuracy,
            **{f"{name}_alone": porting.tested(own.artifact) for name, own in alone.items()},
            **{
                name: porting.tested(branch.checkpoint)
                for name, branch in zip(MULTIPLES, made.branches, strict=True)
            },
            "package_bytes": _size(package),
            "separate_bytes": sum(map(_size, separate.values())),
        }


def _size(package: Path) -> int:
    return (package / "serve.tflite").stat().st_size


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
