"""Collective adaptation against adaptation case by case (paper 4.3 and 8.1: Figure 6(a), Table 2).

`python -m benchmarks.porting.collective [--network NAME] [--data DIR] [--seeds N ...] [--quick] [--json FILE]
[--picture FILE]`

A source is ported to n goals between its multiply-adds and an eighth of them, evenly spread on a logarithmic
scale. Collective adaptation follows one path of all goals with `morphnet`, with the same total of steps for
any number of goals, or trains nested networks for all of them where `auto` would (32 goals and more). It is
compared with tools that adapt each goal by itself from the same tuned source: Torch-Pruning, which learns
from the source as well, and `morphnet`. Each tool runs with several numbers of steps, which gives a curve of
its mean accuracy over its time. Its time at the mean accuracy of collective adaptation is read off between
two points of this curve: where collective adaptation is better than with the most steps, it is their time, a
lower bound; where it is worse than with the fewest, it is 0.

Sixteen goals are ported case by case, and stand for those between them where there are more. Times are of the
processor, with one thread, in one warm worker, counting everything for a goal; tuning the source, packages
and the choice of the peer's learning rate count on neither side. The peer has, for each number of steps, the
best of several learning rates for a middle goal, by validation data.

The networks are MLPerf Tiny's ResNet-8 on CIFAR-10, and the built-in one for digits, which stands against
`morphnet` alone; `--network` ports one of them, `resnet8` or `digits`. For the former DIR has
`cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`, and the
peer is installed by `pip install -e '.[server,bench,peers]'`. `--quick` ports the digits to 8 goals, with few
steps and one seed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

import tensorflow as tf
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import (
    Figures,
    MissingDataError,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)
from benchmarks.harness.worker import FILES, Checkpoint, Porting, resnet8
from benchmarks.porting.collective_comparison import Comparison, Curve, Ported
from mistify_server.tasks.sources import DataSource, ModelSource

SMALLEST: Final = 0.125

#: Numbers of goals.
COUNTS: Final = (1, 4, 16, 64, 128)

#: The most goals that are ported case by case.
CASES: Final = 16

#: From so many goals on nested networks are trained, as `auto` does.
NESTED_FROM: Final = 32

#: The least steps of a goal.
LEAST_STEPS: Final = 10

#: The peer's highest learning rates, and the steps of its runs.
RATES: Final = (0.02, 0.04, 0.08)
PEER_STEPS: Final = (100, 300, 900)

_RESNET8, _DIGITS = "resnet8", "digits"
_PEER, _MORPHNET = "Torch-Pruning", "morphnet"

TARGETS: Final[dict[str, Target]] = {
    "resnet8_over_torch_pruning_at_16": {"min": 8, "full_run_only": True},
    "resnet8_over_torch_pruning_at_64": {"min": 20, "full_run_only": True},
    "resnet8_points_over_its_300_steps_at_16": {"min": 0, "full_run_only": True},
    "resnet8_points_over_its_300_steps_at_64": {"min": 0, "full_run_only": True},
    "resnet8_over_morphnet_at_128": {"min": 12, "full_run_only": True},
    "digits_over_morphnet_at_128": {"min": 20, "full_run_only": True},
    **{
        f"{network}_points_below_{steps}_steps_at_128": {"max": points, "full_run_only": True}
        for network in (_RESNET8, _DIGITS)
        for steps, points in ((300, 0.5), (1_000, 1.5))
    },
}


@dataclass(frozen=True)
class Network:
    """A source to be ported.

    Attributes:
        open: Tunes the source; takes a directory for checkpoints and settings.
        counts: Numbers of goals.
        path_steps: Steps of a path, however many goals it has.
        segment_steps: Steps of each of the nested networks.
        case_steps: Steps of the runs of `morphnet` case by case.
        peer_steps: Steps of the runs of Torch-Pruning; none without it.
    """

    open: Callable[[Path, Mapping[str, object]], Porting]
    counts: tuple[int, ...]
    path_steps: int
    segment_steps: int
    case_steps: tuple[int, ...]
    peer_steps: tuple[int, ...] = ()


def measure(options: Namespace) -> Figures:
    """Port with each seed, print the tables, draw the picture and return the medians."""
    networks = {_DIGITS: _quick()} if options.quick else _networks(options)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    seeds = seeds_of(options)
    figures: dict[str, float] = {}
    comparisons: dict[str, Comparison] = {}
    for name, network in networks.items():
        by_seed = [compared(network, seed) for seed in seeds]
        for seed, comparison in zip(seeds, by_seed, strict=True):
            Console().print(*_tables(f"{name}, seed {seed}", comparison), sep="\n")
        of_seeds = [figures_of(comparison) for comparison in by_seed]
        figures |= {f"{name}_{figure}": median(of[figure] for of in of_seeds) for figure in of_seeds[0]}
        comparisons[name] = by_seed[0]
    if options.picture:
        _draw(comparisons, options.picture)
    return figures


def _networks(options: Namespace) -> dict[str, Network]:
    """Return the networks of a full run, or that which is asked for."""
    networks = {}
    if options.network != _RESNET8:
        networks[_DIGITS] = Network(_digits, COUNTS, 800, 1_200, (30, 100, 300, 1_000))
    if options.network != _DIGITS:
        opened = partial(resnet8, data_with(FILES, options))
        networks[_RESNET8] = Network(opened, COUNTS, 2_400, 1_200, (100, 300, 1_000), PEER_STEPS)
        if find_spec("torch_pruning") is None:
            raise MissingDataError("Torch-Pruning is not installed: pip install -e '.[peers]'")
    return networks


def _quick() -> Network:
    return Network(_digits, (2, 8), 160, 100, (20, 60))


def _digits(directory: Path, settings: Mapping[str, object]) -> Porting:
    data = DataSource(train="builtin:digits-train", test="builtin:digits-test")
    return Porting(ModelSource(builtin="digits-resnet"), data, directory, settings)


def shares_of(count: int) -> list[float]:
    """Return shares of the source's multiply-adds, falling; those for n goals are among those for 2n."""
    return [SMALLEST ** (place / count) for place in range(1, count + 1)]


def compared(network: Network, seed: int) -> Comparison:
    """Return all sides with a seed, and report progress."""
    with TemporaryDirectory() as directory:
        root = Path(directory)
        porting = network.open(root / "source", {"seed": seed})
        collective = {}
        for count in network.counts:
            collective[count] = _collective(network, porting, root / str(count), count, seed)
            _report(f"seed {seed}, {count} goals", collective[count])
        cases = {_MORPHNET: _curve(_MORPHNET, network.case_steps, partial(_case, porting))}
        if network.peer_steps:
            cases[_PEER] = _curve(_PEER, network.peer_steps, _Peer(porting, seed).case)
        return Comparison(collective, cases)


def _collective(network: Network, porting: Porting, directory: Path, count: int, seed: int) -> Ported:
    """Port to a number of goals: along a path, or by nested networks."""
    shares = shares_of(count)
    start = process_time()
    if count < NESTED_FROM:
        steps = {share: max(LEAST_STEPS, network.path_steps // count) for share in shares}
        checkpoints, all_steps = porting.descended(steps), sum(steps.values())
        seconds = process_time() - start
        return _tested(porting, checkpoints, seconds, all_steps)
    settings = {"source_steps": 0, "segment_steps": network.segment_steps, "seed": seed}
    nested = Porting(porting.tuned, porting.data, directory, settings, algorithm="nested", least=SMALLEST)
    checkpoints = nested.descended(dict.fromkeys(shares))
    seconds = process_time() - start
    return _tested(nested, checkpoints, seconds, nested.preparing_steps)


def _tested(porting: Porting, checkpoints: Mapping[float, Checkpoint], seconds: float, steps: int) -> Ported:
    """Return goals with the accuracies of those that are ported case by case as well."""
    accuracies = {
        share: porting.tested(checkpoints[share].artifact)
        for share in shares_of(CASES)
        if share in checkpoints
    }
    return Ported(accuracies, seconds, steps)


def _curve(name: str, steps: Iterable[int], case: Callable[[float, int], tuple[float, float]]) -> Curve:
    """Return the runs of a tool.

    Args:
        name: Name of the tool.
        steps: Steps for a goal, one run for each.
        case: Ports a goal with some steps; returns its accuracy in percent and the seconds.
    """
    curve = {}
    for count in steps:
        goals = {share: case(share, count) for share in shares_of(CASES)}
        accuracies = {share: accuracy for share, (accuracy, _) in goals.items()}
        seconds = sum(seconds for _, seconds in goals.values())
        curve[count] = Ported(accuracies, seconds, count * len(goals))
        _report(f"{name}, {count} steps", curve[count])
    return curve


def _case(porting: Porting, share: float, steps: int) -> tuple[float, float]:
    """Port one goal by `morphnet`; return its accuracy in percent, and the seconds."""
    start = process_time()
    checkpoint = porting.checkpoint(share, steps)
    seconds = process_time() - start
    return porting.tested(checkpoint.artifact), seconds


class _Peer:
    """Torch-Pruning with a tuned source, with the learning rate that suits a middle goal best.

    Args:
        porting: Provides the source and the data.
        seed: Seed for the order of the examples.
    """

    def __init__(self, porting: Porting, seed: int) -> None:
        from benchmarks.porting import torch_pruner  # noqa: PLC0415 - an optional dependency

        self._peer = torch_pruner.Peer(porting.source(), *porting.learning(), seed)
        self._test = porting.test()
        self._rates: dict[int, float] = {}

    def case(self, share: float, steps: int) -> tuple[float, float]:
        """Port one goal; return its accuracy in percent, and the seconds."""
        from benchmarks.porting import torch_resnet8  # noqa: PLC0415 - an optional dependency

        if steps not in self._rates:
            self._rates[steps] = self._peer.best(SMALLEST**0.5, steps, RATES).rate
        cut = self._peer.cut(share, steps, self._rates[steps])
        return 100 * torch_resnet8.accuracy(cut.network, self._test), cut.seconds


def figures_of(comparison: Comparison) -> dict[str, float]:
    """Return the figures of all numbers of goals with one seed."""
    figures = {}
    for count, ported in comparison.collective.items():
        figures[f"seconds_at_{count}"] = ported.seconds
        for tool, curve in comparison.cases.items():
            name = tool.lower().replace("-", "_")
            figures[f"over_{name}_at_{count}"] = comparison.times_faster(tool, count)
            figures[f"fewer_steps_than_{name}_at_{count}"] = comparison.times_fewer_steps(tool, count)
            for steps in curve:
                points = comparison.points_below(tool, steps, count)
                if tool == _PEER:
                    figures[f"points_over_its_{steps}_steps_at_{count}"] = -points
                else:
                    figures[f"points_below_{steps}_steps_at_{count}"] = points
    return figures


def _report(what: str, ported: Ported) -> None:
    accuracy = ported.accuracy(ported.accuracies)
    print(f"{what}: {accuracy:.1f} % in {ported.seconds:,.0f} s", file=sys.stderr, flush=True)


def _tables(name: str, comparison: Comparison) -> tuple[Table, Table]:
    goals = Table(title=f"{name}: collective adaptation", title_justify="left")
    tools = list(comparison.cases)
    for column in ("goals", "mean accuracy", "seconds", "steps"):
        goals.add_column(column, justify="right")
    for tool in tools:
        goals.add_column(f"times faster than {tool}", justify="right")
        goals.add_column("times fewer steps", justify="right")
    for count, ported in comparison.collective.items():
        ratios = (
            f"{ratio(tool, count):.1f}"
            for tool in tools
            for ratio in (comparison.times_faster, comparison.times_fewer_steps)
        )
        accuracy = ported.accuracy(ported.accuracies)
        goals.add_row(str(count), f"{accuracy:.1f} %", f"{ported.seconds:,.0f}", f"{ported.steps:,}", *ratios)
    cases = Table(title=f"{name}: {CASES} goals case by case", title_justify="left")
    for column in ("tool", "steps of a goal", "mean accuracy", "seconds of a goal"):
        cases.add_column(column, justify="left" if column == "tool" else "right")
    for tool, curve in comparison.cases.items():
        for steps, ported in curve.items():
            accuracy, seconds = ported.accuracy(ported.accuracies), ported.seconds / len(ported.accuracies)
            cases.add_row(tool, f"{steps:,}", f"{accuracy:.1f} %", f"{seconds:.1f}")
    return goals, cases


def _draw(comparisons: Mapping[str, Comparison], file: Path) -> None:
    """Draw the accuracies of each network by share, and its seconds by the number of goals."""
    figure = Figure(figsize=(10, 4 * len(comparisons)), layout="constrained")
    rows = figure.subplots(len(comparisons), 2, squeeze=False)
    for (by_share, by_count), (name, comparison) in zip(rows, comparisons.items(), strict=True):
        counts = list(comparison.collective)
        together = comparison.collective[max(counts)]
        case_by_case = {
            f"{tool}, {steps:,} steps each": ported
            for tool, curve in comparison.cases.items()
            for steps, ported in curve.items()
        }
        for label, ported in {f"{max(counts)} goals together": together, **case_by_case}.items():
            by_share.semilogx(*zip(*sorted(ported.accuracies.items()), strict=True), "o-", ms=3, label=label)
        by_count.loglog(counts, [comparison.collective[n].seconds for n in counts], "o-", label="together")
        for label, ported in case_by_case.items():
            each = ported.seconds / len(ported.accuracies)
            by_count.loglog(counts, [each * n for n in counts], "--", label=label)
        by_share.set(title=name, xlabel="share of the source's multiply-adds", ylabel="accuracy, %")
        by_count.set(title=name, xlabel="goals", ylabel="seconds of the processor")
        for axes in (by_share, by_count):
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=(_RESNET8, _DIGITS), help="port only this one")
    add_seeds_option(parser)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw all sides into this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.collective", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
