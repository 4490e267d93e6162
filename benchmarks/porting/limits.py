"""Accuracy under limits on latency, memory and size, with default settings.

`python -m benchmarks.porting.limits --data DIR [--network {resnet8,mobilenet,snips}] [--seeds N ...]
[--quick] [--json FILE]`

MLPerf Tiny's ResNet-8 on CIFAR-10 is ported to limits on latency on this machine, on memory and on size, with
the precision chosen by the server and as float32. A small MobileNet on CIFAR-10 and the encoder of
`porting.snips`, both trained from scratch by the job, are ported to limits on latency, and as a reference to
limits on multiply-adds with packages at three precisions. The loss of a latency goal is the difference in
points to the best package of equal latency from the multiply-add goals, linearly interpolated over the
logarithm of the latency.

Each job has one seed; results are medians over the seeds. Goals that the server's plan refuses, because even
the smallest network is too slow, are left out, and their targets count as missed: integer kernels are fast on
some machines, and as slow as float32 on others. A failed goal ends the benchmark. The use of a limit is the
package's cost as a share of the limit.

`--quick` trains with few steps and one seed: it shows that everything works, with far less accurate networks.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness.mobilenet import mobilenet
from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)
from benchmarks.harness.worker import FILES, RESNET8, TEST, TRAIN
from benchmarks.porting import snips
from benchmarks.porting.feasible_goals import feasible
from mistify.costs.budget import hardware_of
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal, GoalState, Job
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient

NETWORKS: Final = ("resnet8", "mobilenet", "snips")

#: Limits on latency, as shares of the source's latency on this machine.
LATENCIES: Final = ("0.5x", "0.25x", "0.125x")
FLOAT32: Final = "none"

#: Multiply-adds of the reference goals, and the precisions of their packages.
MULTIPLY_ADDS: Final = (0.75, 0.5, 0.35, 0.25, 0.175, 0.125)
PRECISIONS: Final = (Quantization.NONE, Quantization.DYNAMIC, Quantization.INT8)

#: The limits in Figure 3 of the paper.
_FIGURE3: Final = {"latency": "0.06ms", "memory": "0.4MB", "accuracy": "0.75"}

_QUICK_SETTINGS: Final[dict[str, object]] = {"source_steps": 60, "adapt_steps": 40, "tune_steps": 40}

#: Minimum accuracies on the test file, in percent.
_ACCURACIES: Final = {
    "figure3": 81.0,
    "size_0.1x": 69.0,
    "memory_0.25x": 81.5,
    "latency_0.5x": 81.5,
    "latency_0.25x": 78.0,
    "latency_0.125x": 70.0,
    "latency_0.5x_float32": 75.0,
    "latency_0.25x_float32": 66.0,
    "latency_0.125x_float32": 50.0,
}
TARGETS: Final[dict[str, Target]] = {
    **{
        f"resnet8_{goal}_accuracy": {
            "what": f"resnet8, {goal.replace('_', ' ')}: accuracy, %",
            "min": least,
            "full_run_only": True,
        }
        for goal, least in _ACCURACIES.items()
    },
    **{
        f"{network}_most_used": {"what": f"{network}: highest latency as a share of its limit", "max": 1.0}
        for network in NETWORKS
    },
    **{
        f"{network}_least_used": {
            "what": f"{network}: lowest latency of a cut network as a share of its limit",
            "min": 0.9,
            "full_run_only": True,
        }
        for network in NETWORKS
    },
    **{
        f"{network}_most_lost": {
            "what": f"{network}: largest accuracy loss against a multiply-add goal of equal latency, points",
            "max": 2.0,
            "full_run_only": True,
        }
        for network in NETWORKS[1:]
    },
}


#: Networks are trained before porting. An untrained network would learn from goal to goal along a path of
#: multiply-adds, which would be mistaken for an advantage of that axis.
_MOBILENET_SETTINGS: Final[dict[str, object]] = {"learning_rate": 0.05, "source_steps": 10_000}


class Package(NamedTuple):
    """The package of a goal.

    Attributes:
        accuracy: Accuracy on the test file, in percent.
        latency_ms: Measured on this machine.
        share: Multiply-adds, as a share of the source's.
        used: Latency as a share of its limit; None without such a limit.
    """

    accuracy: float
    latency_ms: float
    precision: str
    share: float
    used: float | None
    met: bool


def measure(options: Namespace) -> Figures:
    """Port every network with every seed, print the tables and return the figures."""
    figures: dict[str, float] = {}
    for network in [options.network] if options.network else NETWORKS:
        data = data_with(snips.FILES if network == "snips" else FILES, options)
        runs = []
        for seed in seeds_of(options):
            runs.append(_ported(network, data, seed, options.quick))
            Console().print(_table(f"{network}, seed {seed}", runs[-1]))
        figures |= figures_of(network, runs)
    accuracy = ("_accuracy", "_most_lost", "_least_used")
    return {name: of for name, of in figures.items() if not (options.quick and name.endswith(accuracy))}


def figures_of(network: str, runs: Sequence[Mapping[str, Package]]) -> dict[str, float]:
    """Return medians of accuracies and losses over the runs, and the extremes of the limits' use."""
    accuracies = _medians([{goal: package.accuracy for goal, package in of.items()} for of in runs])
    figures = {f"{network}_{goal}_accuracy": accuracy for goal, accuracy in accuracies.items()}
    limited = [package for of in runs for package in of.values() if package.used is not None]
    cut = [package.used for package in limited if package.share < 1 and package.used is not None]
    if limited:
        figures[f"{network}_most_used"] = max(package.used or 0.0 for package in limited)
        figures[f"{network}_least_used"] = min(cut, default=1.0)
    figures[f"{network}_missed"] = sum(not package.met for of in runs for package in of.values())
    lost = _medians([losses(of) for of in runs])
    figures |= {f"{network}_{goal}_lost": points for goal, points in lost.items()}
    return figures | ({f"{network}_most_lost": max(lost.values())} if lost else {})


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the runs that have it."""
    names = dict.fromkeys(name for of in runs for name in of)
    return {name: median(of[name] for of in runs if name in of) for name in names}


def losses(packages: Mapping[str, Package]) -> dict[str, float]:
    """Return the points that each latency goal loses against multiply-add goals of equal latency.

    Float32 packages are only compared with float32 packages.
    """
    lost = {}
    for goal, package in packages.items():
        compared = [
            other
            for name, other in packages.items()
            if name.startswith("FLOP") and (other.precision == FLOAT32 or not goal.endswith("float32"))
        ]
        if package.used is not None and compared:
            lost[goal] = reached_in(package.latency_ms, compared) - package.accuracy
    return lost


def reached_in(latency_ms: float, packages: Sequence[Package]) -> float:
    """Return the accuracy of the best of several packages at a latency, interpolated between two."""
    best: list[Package] = []
    for package in sorted(packages, key=lambda each: each.latency_ms):
        if not best or package.accuracy > best[-1].accuracy:
            best.append(package)
    times = np.log([package.latency_ms for package in best])
    return float(np.interp(np.log(latency_ms), times, [package.accuracy for package in best], left=0.0))


def _ported(network: str, data: Path, seed: int, quick: bool) -> dict[str, Package]:
    """Port all goals of a network in one job; return their packages by goal."""
    with TemporaryDirectory() as directory:
        common, settings = _source(network, data, Path(directory))
        settings = {**settings, "seed": seed, **(_QUICK_SETTINGS if quick else {})}
        common["algorithm"] = {"name": "auto", "config": settings}
        goals = [{**goal, **common} for goal in (_limits() if network == "resnet8" else _comparison())]
        roots = [data.resolve(), Path(directory).resolve()]
        with embedded_server(Path(directory) / "store", roots) as server, PortingClient(*server) as client:
            job = client.submit(json.dumps(list(feasible(goals, client))), f"{network}-{seed}")
            for event in client.watch(job.id):
                if isinstance(event.event, GoalState) and event.event.ended:
                    print(network, seed, event.goal_id, event.event.value, file=sys.stderr, flush=True)
            return packages_of(client.job(job.id))


def packages_of(job: Job) -> dict[str, Package]:
    """Return the packages of a job by goal.

    Raises:
        RuntimeError: A goal has no package.
    """
    lacking = [goal for goal in job.goals if goal.accuracy is None]
    if not job.sources or lacking:
        reasons = "; ".join(f"{goal.id}: {goal.reason}" for goal in lacking)
        raise RuntimeError(f"the job is {job.state.value}: {job.reason or reasons}")
    whole = job.sources[0].costs["flops"]
    return {goal.id: _package(goal, whole) for goal in job.goals}


def _package(goal: Goal, whole: float) -> Package:
    limits = {axis: limit for axis, limit in goal.spec.budget.items() if hardware_of(axis)}
    used = [goal.measured[axis] / limit for axis, limit in limits.items()]
    return Package(
        accuracy=100 * (goal.accuracy or 0.0),
        latency_ms=goal.measured["latency_ms@host"],
        precision=goal.spec.quantization.precision.value,
        share=goal.achieved["flops"] / whole,
        used=max(used, default=None),
        met=goal.state is GoalState.MET,
    )


def _limits() -> Iterator[dict[str, object]]:
    yield from _latencies()
    yield {"id": "figure3", "adaptation_goal": _FIGURE3}
    yield {"id": "memory_0.25x", "adaptation_goal": {"memory": "0.25x"}}
    yield {"id": "size_0.1x", "adaptation_goal": {"size": "0.1x"}}


def _comparison() -> Iterator[dict[str, object]]:
    yield from _latencies()
    for share in MULTIPLY_ADDS:
        for precision in PRECISIONS:
            goal: dict[str, object] = {"adaptation_goal": {"FLOP": f"{share}x"}}
            yield {**goal, "id": f"FLOP_{share}x_{precision.value}", "quantization": precision.value}


def _latencies() -> Iterator[dict[str, object]]:
    for share in LATENCIES:
        goal: dict[str, object] = {"adaptation_goal": {"latency": share}}
        yield {**goal, "id": f"latency_{share}"}
        yield {**goal, "id": f"latency_{share}_float32", "quantization": FLOAT32}


def _source(network: str, data: Path, directory: Path) -> tuple[dict[str, object], dict[str, object]]:
    """Return the model and data as a config names them, and the settings for training."""
    if network == "snips":
        snips.prepare(data, directory, 0)
        dataset = {"train": "train.npz", "test": "test.npz", "metric": snips.METRIC.value}
        return {"model": snips.MODEL, "dataset": dataset}, dict(snips.SETTINGS)
    files: dict[str, object] = {"dataset": {"train": TRAIN, "test": TEST}}
    if network == "resnet8":
        return {"model": RESNET8, **files}, {}
    mobilenet().save(directory / "mobilenet.keras")
    augmented = {"train": TRAIN, "test": TEST, "augment": {"flip": True, "crop": 4}}
    return {"model": "mobilenet.keras", "dataset": augmented}, _MOBILENET_SETTINGS


def _table(title: str, packages: Mapping[str, Package]) -> Table:
    table = Table(title=title, title_justify="left")
    columns = ("goal", "precision", "multiply-adds", "latency, us", "of the limit", "accuracy", "met", "lost")
    for column in columns:
        table.add_column(column, justify="left" if column in ("goal", "precision", "met") else "right")
    lost = losses(packages)
    for goal, package in packages.items():
        table.add_row(
            goal,
            package.precision,
            f"{package.share:.2f}",
            f"{1e3 * package.latency_ms:.1f}",
            "" if package.used is None else f"{package.used:.2f}",
            f"{package.accuracy:.1f} %",
            "yes" if package.met else "no",
            f"{lost[goal]:.1f}" if goal in lost else "",
        )
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=NETWORKS, help="port only this network")
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.limits", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
