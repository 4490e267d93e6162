"""The accuracy of a network with twice the source's multiply-adds, compared with the tuned source.

`python -m benchmarks.porting.larger --data DIR [--seeds N ...] [--quick] [--json FILE]`

MLPerf Tiny's ResNet-8 is tuned on CIFAR-10 and ported to twice its multiply-adds, with the default steps. The
served network is chosen on validation data; it is the source itself if the larger network is hardly better.
Gains are points on the test data. Directly after widening to four times its multiply-adds, the source must be
as accurate as before: `expansion_difference` is the difference in points. `--quick` trains with few steps and
one seed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
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
from benchmarks.harness.worker import FILES, Porting, resnet8
from mistify.costs.budget import FLOPS

SHARE: Final = 2.0

#: Multiply-adds of the source after widening alone, as a multiple.
_EXPANSION: Final = 4.0

_QUICK_SETTINGS: Final[dict[str, object]] = {
    "source_steps": 60, "adapt_steps": 40, "tune_steps": 20, "max_steps": 120
}  # fmt: skip

TARGETS: Final[dict[str, Target]] = {
    "points_gained": {
        "what": "accuracy gain over the tuned source at twice its multiply-adds, points",
        "min": 1.0,
        "full_run_only": True,
    },
    "equalled_by_the_source": {
        "what": "seeds in which the tuned source is as good on validation data",
        "max": 0,
    },
    "expansion_difference": {
        "what": "largest difference of the outputs after widening",
        "max": 0.05,
    },
}


class Network(NamedTuple):
    """A network: its multiply-adds as a share of the source's, and its accuracies in percent."""

    share: float
    validation_accuracy: float
    accuracy: float


def measure(options: Namespace) -> Figures:
    """Port with every seed, print the table and return the figures."""
    data = data_with(FILES, options)
    runs, differences = [], []
    for seed in seeds_of(options):
        settings = {"seed": seed, **(_QUICK_SETTINGS if options.quick else {})}
        with TemporaryDirectory() as directory:
            porting = resnet8(data, Path(directory), settings)
            runs.append((_network(porting, 1.0), _network(porting, SHARE)))
            differences.append(abs(porting.widened_accuracy(_EXPANSION) - porting.accuracy))
        print(f"seed {seed}:", *runs[-1], file=sys.stderr, flush=True)
    Console().print(_table(seeds_of(options), runs))
    figures = figures_of(runs) | {"expansion_difference": max(differences)}
    return {name: of for name, of in figures.items() if not options.quick or not name.startswith("points")}


def figures_of(runs: Sequence[tuple[Network, Network]]) -> dict[str, float]:
    """Return the mean and minimum gain in points, and the number of larger networks that are no better.

    Args:
        runs: The source, and the network that is served instead.
    """
    gains = [served.accuracy - source.accuracy for source, served in runs]
    equalled = sum(
        served.share > source.share and served.validation_accuracy <= source.validation_accuracy
        for source, served in runs
    )
    return {
        "points_gained": mean(gains),
        "points_gained_least": min(gains),
        "served_larger": sum(served.share > source.share for source, served in runs),
        "equalled_by_the_source": equalled,
    }


def _network(porting: Porting, share: float) -> Network:
    checkpoint = porting.checkpoint(share)
    whole = porting.checkpoint(1.0).costs[FLOPS]
    accuracy = porting.tested(checkpoint.artifact)
    return Network(checkpoint.costs[FLOPS] / whole, 100 * checkpoint.accuracy, accuracy)


def _table(seeds: Sequence[int], runs: Sequence[tuple[Network, Network]]) -> Table:
    table = Table(title=f"ResNet-8 at {SHARE:g} times its multiply-adds", title_justify="left")
    for column in ("seed", "multiply-adds", "validation", "test", "of the source", "test", "gained"):
        table.add_column(column, justify="right")
    for seed, (source, served) in zip(seeds, runs, strict=True):
        table.add_row(
            str(seed),
            f"{served.share:.2f}",
            *(f"{accuracy:.2f} %" for accuracy in (*served[1:], *source[1:])),
            f"{served.accuracy - source.accuracy:+.2f}",
        )
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.larger", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
