"""Accuracy against multiply-adds, memory and latency (paper 8.4: Figure 8).

`python -m benchmarks.porting.tradeoffs --data DIR [--network {resnet8,snips}] [--quick] [--json FILE]
[--picture FILE]`

A server ports MLPerf Tiny's ResNet-8 on CIFAR-10 and the encoder of `porting.snips`, in one job each, to
goals for multiply-adds, for memory, and for latency on this machine, at geometrically spaced shares from 0.9
to 0.05 of the source. Latency goals are ported twice: in float32, and with the precision chosen by the
server, as for memory. Goals that the server's plan refuses, because even the smallest network is too slow,
are left out. Every package is measured in LiteRT. The JSON has the points, by network and series, as
`NETWORK_SERIES_NUMBER` (the cost reached, as a share of the source's in float32) and
`NETWORK_SERIES_NUMBER_accuracy` (in percent).

`--quick` uses two goals for each axis, and trains with few steps.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, add_data_option, data_with, run
from benchmarks.harness.worker import FILES, RESNET8, TEST, TRAIN
from benchmarks.porting import snips
from benchmarks.porting.feasible_goals import feasible
from mistify.costs.axes import at_precision
from mistify.costs.budget import FLOPS, MEMORY, latency_axis
from mistify.costs.catalogue import HOST
from mistify.jobs.job import Goal, GoalState, Job
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient

NETWORKS: Final = ("resnet8", "snips")
COUNT: Final = 8
QUICK_COUNT: Final = 2
LARGEST, SMALLEST = 0.9, 0.05


class Series(NamedTuple):
    """Goals on one axis: the key of their limit in a config, the requested precision, and the axis."""

    key: str
    precision: str
    axis: str


#: First part of the goals' ids -> series.
SERIES: Final[Mapping[str, Series]] = {
    "FLOP": Series("FLOP", "none", FLOPS),
    "memory": Series("memory", "auto", MEMORY),
    "latency-float32": Series("latency", "none", latency_axis(HOST.name)),
    "latency": Series("latency", "auto", latency_axis(HOST.name)),
}

_STEPS: Final[dict[str, object]] = {"adapt_steps": 400, "tune_steps": 400}
_QUICK_STEPS: Final[dict[str, object]] = {"source_steps": 60, "adapt_steps": 40, "tune_steps": 40}

TARGETS: Final[dict[str, Target]] = {
    f"{network}_goals_met": {
        "what": f"{network}: goals met of {COUNT * len(SERIES)} requested, including refused ones",
        "min": 26,
        "full_run_only": True,
    }
    for network in NETWORKS
}


class Point(NamedTuple):
    """A goal that was met: its series, its cost as a share of the source's, and its accuracy."""

    series: str
    share: float
    accuracy: float


def measure(options: Namespace) -> Figures:
    """Port every network, print the tables, draw the picture and return the figures."""
    data = data_with({*FILES, *snips.FILES}, options)
    points: dict[str, list[Point]] = {}
    for network in [options.network] if options.network else NETWORKS:
        job = _ported(network, data, options.quick)
        points[network] = points_of(job)
        Console().print(_table(network, job, points[network]))
    if options.picture:
        _draw(points, options.picture)
    return {} if options.quick else figures_of(points)


def points_of(job: Job) -> list[Point]:
    """Return the goals that are met, by series, largest first."""
    if not job.sources:
        raise RuntimeError(f"the job is {job.state.value}: {job.reason}")
    points = []
    for name in SERIES:
        met = [goal for goal in job.goals if goal.state is GoalState.MET and _series_of(goal) == name]
        reached = [_point(name, goal, job.sources[0].costs) for goal in met]
        points += sorted(reached, key=lambda point: -point.share)
    return points


def figures_of(by_network: Mapping[str, Sequence[Point]]) -> Figures:
    """Return every point, and the number of goals."""
    figures: dict[str, float] = {}
    for network, points in by_network.items():
        for series, of in groupby(points, lambda point: point.series):
            for number, point in enumerate(of):
                figures[f"{network}_{series}_{number}"] = point.share
                figures[f"{network}_{series}_{number}_accuracy"] = point.accuracy
        figures[f"{network}_goals_met"] = len(points)
    return figures


def _series_of(goal: Goal) -> str:
    return goal.id.rpartition("-")[0]


def _point(series: str, goal: Goal, source: Mapping[str, float]) -> Point:
    axis = SERIES[series].axis
    costs = {**goal.achieved, **goal.measured}
    reached = costs[at_precision(axis, goal.spec.quantization.precision)]
    return Point(series, reached / source[axis], 100 * (goal.accuracy or 0.0))


def _ported(network: str, data: Path, quick: bool) -> Job:
    """Port all goals in one job, and return the finished job."""
    with TemporaryDirectory() as directory:
        root, common, settings = _source(network, data, Path(directory) / "data")
        common["algorithm"] = {"name": "morphnet", "config": settings | (_QUICK_STEPS if quick else _STEPS)}
        configs = [{**goal, **common} for goal in _goals(QUICK_COUNT if quick else COUNT)]
        with (
            embedded_server(Path(directory) / "store", [root.resolve()]) as server,
            PortingClient(*server) as client,
        ):
            job = client.submit(json.dumps(list(feasible(configs, client))), network)
            for event in client.watch(job.id):
                if isinstance(event.event, GoalState) and event.event.ended:
                    print(event.goal_id, event.event.value, file=sys.stderr, flush=True)
            return client.job(job.id)


def _source(network: str, data: Path, directory: Path) -> tuple[Path, dict[str, object], dict[str, object]]:
    """Return the data root, the model and data as a config names them, and the algorithm's settings."""
    if network == "resnet8":
        return data, {"model": RESNET8, "dataset": {"train": TRAIN, "test": TEST}}, {}
    directory.mkdir()
    snips.prepare(data, directory, 0)
    dataset = {"train": "train.npz", "test": "test.npz", "metric": snips.METRIC.value}
    return directory, {"model": snips.MODEL, "dataset": dataset}, snips.SETTINGS


def _goals(count: int) -> Iterator[dict[str, object]]:
    for name, series in SERIES.items():
        for place in range(count):
            share = LARGEST * (SMALLEST / LARGEST) ** (place / (count - 1))
            goal: dict[str, object] = {"adaptation_goal": {series.key: f"{share:.4f}x"}}
            yield goal | {"id": f"{name}-{share:.3f}", "quantization": series.precision}


def _table(network: str, job: Job, points: Sequence[Point]) -> Table:
    table = Table(
        title=f"{network}: {len(job.goals)} goals in {job.seconds or 0:,.0f} s", title_justify="left"
    )
    for column in ("limit on", "share of the source's", "accuracy"):
        table.add_column(column, justify="right")
    for point in points:
        table.add_row(point.series, f"{point.share:.3f}", f"{point.accuracy:.1f} %")
    return table


def _draw(by_network: Mapping[str, Sequence[Point]], file: Path) -> None:
    figure = Figure(figsize=(9, 3 * len(by_network)), layout="constrained")
    keys = list(dict.fromkeys(series.key for series in SERIES.values()))
    rows = figure.subplots(len(by_network), len(keys), sharex=True, sharey="row", squeeze=False)
    for row, (network, points) in zip(rows, by_network.items(), strict=True):
        for axes, key in zip(row, keys, strict=True):
            for name in (name for name, series in SERIES.items() if series.key == key):
                of = [point for point in points if point.series == name]
                shares, accuracies = [point.share for point in of], [point.accuracy for point in of]
                label = "float32" if SERIES[name].precision == "none" else "precision chosen"
                axes.plot(shares, accuracies, "o-", markersize=4, label=label)
            axes.set(xscale="log", title=f"{network}: {key}", xlabel="share of the source's")
            axes.grid(alpha=0.3)
            axes.legend()
        row[0].set_ylabel("accuracy, %")
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=NETWORKS, help="port only this network")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the points to this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.tradeoffs", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
