"""Collective adaptation against adaptation case by case (paper 4.3 and 8.1: Figure 6(a), Table 2).

`python -m benchmarks.porting.collective [--network NAME] [--data DIR] [--seeds N ...] [--quick] [--json FILE]
[--picture FILE]`

A source is ported to n goals between its multiply-adds and an eighth of them, evenly spaced on a logarithmic
scale. Collective adaptation is a job of these goals with default settings: each goal is adapted by the
algorithm that the server's plan selects with `auto`. It is compared with tools that adapt each goal
individually from the same tuned source: Torch-Pruning, which also distils from the source, and `morphnet`.
Each of them is run with several numbers of steps, which gives a curve of mean accuracy over time. The tool's
time at the mean accuracy of collective adaptation is interpolated between two points of this curve. If
collective adaptation is better than the tool with the most steps, the time with the most steps is used, a
lower bound; if it is worse than the tool with the fewest steps, the time is 0.

At most sixteen goals are ported case by case, and represent the goals between them. Times are CPU times with
one thread in one warm worker. They include everything that a user waits for after the source is tuned:
adaptation and packaging. The first packages make templates, into which the others are written; goals that
are not packaged count as the later ones. For case by case, all packages count as the later ones, and those of
the peer's networks as `morphnet`'s. Selecting the peer's learning rate and ranking is not included. Figures
with `adapting` exclude packaging. For each number of steps, the peer uses the best of several learning rates
for a middle goal, and the better of two rankings of channels, selected on validation data.

The networks are MLPerf Tiny's ResNet-8 on CIFAR-10, and the built-in one for digits, which is only compared
with `morphnet`; `--network` ports one of them, `resnet8` or `digits`. For the former, DIR has
`cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`, and the
peer is installed by `pip install -e '.[server,bench,peers]'`. `--quick` ports the digits to 8 goals, with few
steps and one seed.
"""

import json
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
from typing import Final, NamedTuple

import tensorflow as tf
from rich.console import Console

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
from benchmarks.harness.worker import FILES, RESNET8, TEST, TRAIN, Checkpoint, Porting, resnet8
from benchmarks.porting.collective_comparison import Comparison, Curve, Ported
from benchmarks.porting.collective_report import draw, tables
from mistify.jobs.plan import PlannedBatch
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient
from mistify_server.tasks.sources import DataSource, ModelSource

SMALLEST: Final = 0.125

#: Numbers of goals.
COUNTS: Final = (1, 4, 16, 64, 128)

#: Maximum number of goals that are ported case by case.
CASES: Final = 16

#: Number of packages after which all that follow take about as long; jobs with more goals share conversions.
_FIRST_PACKAGES: Final = 2

_DIGITS_SOURCE: Final[Mapping[str, object]] = {
    "model": "digits-resnet",
    "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
}

#: The peer's highest learning rates, and the steps of the runs that select one.
RATES: Final = (0.02, 0.04, 0.08)
PEER_STEPS: Final = (100, 300, 900)

_RESNET8, _DIGITS = "resnet8", "digits"
_PEER, _MORPHNET = "Torch-Pruning", "morphnet"

TARGETS: Final[dict[str, Target]] = {
    **{
        f"resnet8_over_torch_pruning_at_{count}": {
            "what": f"resnet8, {count} goals: speedup over Torch-Pruning case by case at equal accuracy",
            "min": least,
            "full_run_only": True,
        }
        for count, least in ((16, 8.0), (64, 20.0))
    },
    **{
        f"resnet8_points_over_torch_pruning_with_300_steps_at_{count}": {
            "what": f"resnet8, {count} goals: accuracy above Torch-Pruning with 300 steps for each, points",
            "min": 0.0,
            "full_run_only": True,
        }
        for count in (16, 64)
    },
    **{
        f"{network}_over_morphnet_at_128": {
            "what": f"{network}, 128 goals: speedup over `morphnet` case by case at equal accuracy",
            "min": least,
            "full_run_only": True,
        }
        for network, least in ((_RESNET8, 15.0), (_DIGITS, 20.0))
    },
    **{
        f"{network}_points_below_morphnet_with_{steps}_steps_at_128": {
            "what": f"{network}, 128 goals: accuracy below `morphnet` with {steps:,} steps for each, points",
            "max": points,
            "full_run_only": True,
        }
        for network in (_RESNET8, _DIGITS)
        for steps, points in ((300, 0.5), (1_000, 1.5))
    },
}


@dataclass(frozen=True)
class Network:
    """A source to be ported.

    Attributes:
        open: Tunes the source; takes a directory for checkpoints and settings.
        source: Model and data as a config names them.
        root: Directory of the data; None for built-in data.
        counts: Numbers of goals.
        settings: Settings of `auto`; empty for the defaults.
        case_steps: Step counts of the runs of `morphnet` case by case.
        peer_steps: Step counts of the runs of Torch-Pruning; empty without it.
    """

    open: Callable[[Path, Mapping[str, object]], Porting]
    source: Mapping[str, object]
    root: Path | None
    counts: tuple[int, ...]
    settings: Mapping[str, object]
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
            Console().print(*tables(f"{name}, seed {seed}", comparison), sep="\n")
        of_seeds = [figures_of(comparison) for comparison in by_seed]
        figures |= {f"{name}_{figure}": median(of[figure] for of in of_seeds) for figure in of_seeds[0]}
        comparisons[name] = by_seed[0]
    if options.picture:
        draw(comparisons, options.picture)
    return figures


def _networks(options: Namespace) -> dict[str, Network]:
    """Return the networks of a full run, or the requested one."""
    networks = {}
    if options.network != _RESNET8:
        networks[_DIGITS] = Network(_digits, _DIGITS_SOURCE, None, COUNTS, {}, (30, 100, 300, 1_000))
    if options.network != _DIGITS:
        data = data_with(FILES, options)
        source = {"model": RESNET8, "dataset": {"train": TRAIN, "test": TEST}}
        opened = partial(resnet8, data)
        networks[_RESNET8] = Network(opened, source, data, COUNTS, {}, (100, 300, 1_000), PEER_STEPS)
        if find_spec("torch_pruning") is None:
            raise MissingDataError("Torch-Pruning is not installed: pip install -e '.[peers]'")
    return networks


def _quick() -> Network:
    settings = {"source_steps": 60, "adapt_steps": 16, "tune_steps": 24}
    return Network(_digits, _DIGITS_SOURCE, None, (2, 8), settings, (20, 60))


def _digits(directory: Path, settings: Mapping[str, object]) -> Porting:
    data = DataSource(train="builtin:digits-train", test="builtin:digits-test")
    return Porting(ModelSource(builtin="digits-resnet"), data, directory, settings)


def shares_of(count: int) -> list[float]:
    """Return decreasing shares of the source's multiply-adds; those for n goals are among those for 2n."""
    return [SMALLEST ** (place / count) for place in range(1, count + 1)]


def compared(network: Network, seed: int) -> Comparison:
    """Run all sides with a seed, and report progress."""
    with TemporaryDirectory() as directory:
        root = Path(directory)
        porting = network.open(root / "source", {**network.settings, "seed": seed})
        collective = {}
        for count in network.counts:
            collective[count] = _collective(network, porting, root / str(count), count, seed)
            _report(f"seed {seed}, {count} goals", collective[count])
        cases = {_MORPHNET: _curve(_MORPHNET, network.case_steps, partial(_case, porting))}
        if network.peer_steps:
            packaging = cases[_MORPHNET][network.case_steps[-1]].packaging
            peer = _Peer(porting, seed, packaging / len(shares_of(CASES)))
            cases[_PEER] = _curve(_PEER, network.peer_steps, peer.case)
        return Comparison(collective, cases)


def planned(network: Network, shares: Sequence[float], root: Path) -> PlannedBatch:
    """Return the server's plan for goals with these shares of the multiply-adds.

    Args:
        root: Directory for the server's store.
    """
    configs = [
        {
            **network.source,
            "id": f"flop-{number}",
            "adaptation_goal": {"FLOP": f"{share:.6f}x"},
            "algorithm": {"name": "auto", "config": dict(network.settings)},
            "quantization": "none",
        }
        for number, share in enumerate(shares)
    ]
    with (
        embedded_server(root, [network.root] if network.root else []) as server,
        PortingClient(*server) as client,
    ):
        return client.plan(json.dumps(configs)).batches[0]


def by_algorithm(batch: PlannedBatch, shares: Sequence[float]) -> dict[str, list[float]]:
    """Return the shares for which each algorithm is planned; goals are named by their index."""
    algorithms: dict[str, list[float]] = {}
    for edge in batch.edges:
        own = algorithms.setdefault(edge.algorithm, [])
        own += [shares[int(goal.rpartition("-")[2])] for goal in edge.goals]
    return algorithms


def _collective(network: Network, porting: Porting, directory: Path, count: int, seed: int) -> Ported:
    """Port to a number of goals according to the server's plan."""
    shares = shares_of(count)
    batch = planned(network, shares, directory / "store")
    steps = sum(edge.steps for edge in batch.edges) + sum(each.steps for each in batch.preparations)
    settings = {**network.settings, "source_steps": 0, "seed": seed}
    seconds, packaging, accuracies = 0.0, 0.0, dict[float, float]()
    for name, own in by_algorithm(batch, shares).items():
        start = process_time()
        work = directory / name
        tool = Porting(porting.tuned, porting.data, work, settings, algorithm=name, least=SMALLEST)
        seconds += process_time() - start
        compared = [share for share in own if share in shares_of(CASES)]
        checkpoints, timed = dict[float, Checkpoint](), list[float]()
        start = process_time()
        for share, checkpoint in tool.descending(dict.fromkeys(own)):
            seconds += process_time() - start
            checkpoints[share] = checkpoint
            # As in a job: at once, while the network is in memory.
            if share in (compared or own[:1]):
                timed.append(_packaged(tool, checkpoint, shared=count > _FIRST_PACKAGES))
            start = process_time()
        packaging += sum(timed) + (len(own) - len(timed)) * _later(timed)
        accuracies |= {share: tool.tested(checkpoints[share].artifact) for share in compared}
    return Ported(accuracies, seconds, steps, packaging)


def _later(timed: Sequence[float]) -> float:
    """Return the seconds of a package after the first ones, from the seconds of packages in order."""
    return median(timed[_FIRST_PACKAGES:] or timed)


def _packaged(porting: Porting, checkpoint: Checkpoint, shared: bool) -> float:
    """Write a package; return the seconds.

    Args:
        shared: Its conversion is shared with other packages, as in a job of several goals.
    """
    with TemporaryDirectory() as directory:
        start = process_time()
        porting.write_package(checkpoint, Path(directory) / "package", shares_conversion=shared)
        return process_time() - start


class _Case(NamedTuple):
    """A goal ported individually: its accuracy in percent, and the seconds.

    Attributes:
        packaging: Seconds for the package.
    """

    accuracy: float
    seconds: float
    packaging: float


def _curve(name: str, steps: Iterable[int], case: Callable[[float, int], _Case]) -> Curve:
    """Return the runs of a tool.

    Args:
        name: Name of the tool.
        steps: Steps per goal, one run for each.
        case: Ports a goal with a number of steps.
    """
    curve = {}
    for count in steps:
        goals = {share: case(share, count) for share in shares_of(CASES)}
        accuracies = {share: goal.accuracy for share, goal in goals.items()}
        seconds = sum(goal.seconds for goal in goals.values())
        packaging = len(goals) * _later([goal.packaging for goal in goals.values()])
        curve[count] = Ported(accuracies, seconds, count * len(goals), packaging)
        _report(f"{name}, {count} steps", curve[count])
    return curve


def _case(porting: Porting, share: float, steps: int) -> _Case:
    """Port one goal with `morphnet`."""
    start = process_time()
    checkpoint = porting.checkpoint(share, steps)
    seconds = process_time() - start
    return _Case(porting.tested(checkpoint.artifact), seconds, _packaged(porting, checkpoint, shared=True))


class _Peer:
    """Torch-Pruning with a tuned source, with the best learning rate for a middle goal.

    Args:
        porting: Provides the source and the data.
        seed: Seed for the order of the examples.
        packaging: Seconds added for a package.
    """

    def __init__(self, porting: Porting, seed: int, packaging: float) -> None:
        from benchmarks.porting import torch_pruner  # noqa: PLC0415 (an optional dependency)

        self._peer = torch_pruner.Peer(porting.source(), *porting.learning(), seed)
        self._test = porting.test()
        self._packaging = packaging
        self._best: dict[int, torch_pruner.Cut] = {}

    def case(self, share: float, steps: int) -> _Case:
        """Port one goal."""
        from benchmarks.porting import torch_resnet8  # noqa: PLC0415 (an optional dependency)

        if steps not in self._best:
            self._best[steps] = self._peer.best(SMALLEST**0.5, steps, RATES)
        cut = self._peer.cut(share, steps, self._best[steps].rate, self._best[steps].ranking)
        return _Case(100 * torch_resnet8.accuracy(cut.network, self._test), cut.seconds, self._packaging)


def figures_of(comparison: Comparison) -> dict[str, float]:
    """Return the figures for all numbers of goals with one seed."""
    figures = {}
    for count, ported in comparison.collective.items():
        figures[f"seconds_at_{count}"] = ported.waited
        figures[f"adapting_seconds_at_{count}"] = ported.seconds
        for tool, curve in comparison.cases.items():
            name = tool.lower().replace("-", "_")
            figures[f"over_{name}_at_{count}"] = comparison.times_faster(tool, count)
            figures[f"adapting_over_{name}_at_{count}"] = comparison.adapting_times_faster(tool, count)
            figures[f"fewer_steps_than_{name}_at_{count}"] = comparison.times_fewer_steps(tool, count)
            for steps in curve:
                points = comparison.points_below(tool, steps, count)
                if tool == _PEER:
                    figures[f"points_over_torch_pruning_with_{steps}_steps_at_{count}"] = -points
                else:
                    figures[f"points_below_morphnet_with_{steps}_steps_at_{count}"] = points
    return figures


def _report(what: str, ported: Ported) -> None:
    accuracy = ported.accuracy(ported.accuracies)
    print(f"{what}: {accuracy:.1f} % in {ported.waited:,.0f} s", file=sys.stderr, flush=True)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=(_RESNET8, _DIGITS), help="port only this network")
    add_seeds_option(parser)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot all sides to this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.collective", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
