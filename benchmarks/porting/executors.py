"""Accuracy and duration of adaptation algorithms with the same config.

`python -m benchmarks.porting.executors --data DIR [--network {resnet8,snips,mobilenet}] [--steps N]
[--seeds N ...] [--quick] [--json FILE]`

MLPerf Tiny's ResNet-8 on CIFAR-10, the encoder of `porting.snips` and a small MobileNet on CIFAR-10 are tuned
on their data once for each seed. Then a server with a new store ports the tuned network to four goals: in a
first job with `auto`, which therefore knows nothing but the network, and then in one job with each algorithm.
The configs differ only in the algorithm's name. `--steps` is the maximum for a goal; the actual number
depends on an algorithm's cuts. Steps include those that a preparation counts as, in the first job that makes
it. Times are those of the jobs, including reading, preparation, search, training and packaging.

`--quick` trains with few steps and one seed: it shows that everything works, with far less accurate networks.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

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
from benchmarks.harness.worker import FILES, RESNET8, TEST, TRAIN, Porting
from benchmarks.porting import snips
from mistify.config.algorithm import AUTO
from mistify.jobs.job import Job, JobState
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient
from mistify_server.tasks.sources import DataSource, ModelSource

ALGORITHMS: Final = ("morphnet", "chamnet", "random", "uniform")
BASELINES: Final = ("random", "uniform")
NETWORKS: Final = ("resnet8", "snips", "mobilenet")
SHARES: Final = (0.75, 0.5, 0.25, 0.125)

#: Maximum share of a goal's steps before its last cut.
_CUTTING: Final = 0.4

_QUICK_SETTINGS: Final[dict[str, object]] = {"source_steps": 40}
_QUICK_STEPS: Final = 30

#: Settings with which the MobileNet is trained from scratch.
_MOBILENET_SOURCE: Final[dict[str, object]] = {"learning_rate": 0.05}

AUTO_SHORT: Final = "{network}_auto_short"

MORPHNET_AHEAD: Final = "{network}_morphnet_ahead"

#: Points by which `morphnet` has to be better than the baselines, in the mean over the goals.
_AHEAD: Final = {"resnet8": 0.8, "snips": 0.0, "mobilenet": 0.0}

#: Maximum gap in points between the server's choice and the best algorithm, in the mean over the goals.
TARGETS: Final[dict[str, Target]] = {
    AUTO_SHORT.format(network=network): {
        "what": f"{network}: accuracy gap of `auto` below the best algorithm, mean over the goals, points",
        "max": 0.5,
        "full_run_only": True,
    }
    for network in NETWORKS
}
for _network, _points in _AHEAD.items():
    TARGETS[MORPHNET_AHEAD.format(network=_network)] = {
        "what": f"{_network}: `morphnet` above `random` and `uniform`, mean over the goals, points",
        "min": _points,
        "full_run_only": True,
    }


class Descent(NamedTuple):
    """The results of one algorithm with one seed.

    Attributes:
        accuracy: Share of the goal -> accuracy of the package on the test file, in percent.
        steps: Training steps of all goals, and those that the preparation counts as.
        seconds: Duration of the job.
    """

    accuracy: Mapping[float, float]
    steps: int
    seconds: float
    algorithms: tuple[str, ...]


def measure(options: Namespace) -> Figures:
    """Run every algorithm on every network, print the tables and return the figures."""
    data = data_with({*FILES, *snips.FILES}, options)
    figures: dict[str, float] = {}
    for network in [options.network] if options.network else NETWORKS:
        descents: dict[str, list[Descent]] = {algorithm: [] for algorithm in (AUTO, *ALGORITHMS)}
        for seed in seeds_of(options):
            with TemporaryDirectory() as directory:
                for algorithm, descent in _descents(network, data, Path(directory), seed, options).items():
                    descents[algorithm].append(descent)
            Console(stderr=True).print(_table(f"{network}, to seed {seed}", descents))
        Console().print(_table(network, descents))
        figures |= figures_of(network, descents)
        best = max(figures[f"{network}_{algorithm}_mean"] for algorithm in ALGORITHMS)
        figures[AUTO_SHORT.format(network=network)] = best - figures[f"{network}_{AUTO}_mean"]
        baseline = max(figures[f"{network}_{algorithm}_mean"] for algorithm in BASELINES)
        figures[MORPHNET_AHEAD.format(network=network)] = figures[f"{network}_morphnet_mean"] - baseline
    return {} if options.quick else figures


def figures_of(network: str, descents: Mapping[str, Sequence[Descent]]) -> Figures:
    """Return medians over the seeds, for each goal and for the mean over the goals."""
    figures = {}
    for algorithm, runs in descents.items():
        name = f"{network}_{algorithm}"
        for share in SHARES:
            figures[f"{name}_at_{share:g}"] = median(descent.accuracy[share] for descent in runs)
        figures[f"{name}_mean"] = median(sum(run.accuracy.values()) / len(SHARES) for run in runs)
        figures[f"{name}_steps"] = median(descent.steps for descent in runs)
        figures[f"{name}_seconds"] = median(descent.seconds for descent in runs)
    return figures


def _descents(network: str, data: Path, directory: Path, seed: int, options: Namespace) -> dict[str, Descent]:
    """Tune a network, and port it with every algorithm, `auto` first, on a new server."""
    model, files, settings = _source(network, data, directory, seed)
    settings |= {"seed": seed} | (_QUICK_SETTINGS if options.quick else {})
    trained = {**settings, **(_MOBILENET_SOURCE if network == "mobilenet" else {})}
    tuned = Porting(model, files, directory / "tuned", trained, algorithm=BASELINES[0]).tuned
    steps = _QUICK_STEPS if options.quick else options.steps
    roots = [data.resolve(), directory.resolve()]
    with embedded_server(directory / "store", roots) as server, PortingClient(*server) as client:
        descents = {}
        for algorithm in (AUTO, *ALGORITHMS):
            configs = json.dumps(configs_of(algorithm, tuned, files, settings, steps))
            job = client.submit(configs, f"{network}-{algorithm}-{seed}")
            for _ in client.watch(job.id):
                pass
            descents[algorithm] = descent_of(client.job(job.id))
    return descents


def configs_of(
    algorithm: str, model: ModelSource, files: DataSource, settings: Mapping[str, object], steps: int
) -> list[dict[str, object]]:
    """Return the configs of all goals for an algorithm, with a maximum number of steps for each."""
    cutting = round(_CUTTING * steps)
    config = {**settings, "source_steps": 0, "adapt_steps": cutting, "tune_steps": steps - cutting}
    metric = files.settings.metric
    dataset = {"train": files.train, "test": files.test, **({"metric": metric.value} if metric else {})}
    common: dict[str, object] = {
        "model": model.path,
        "dataset": dataset,
        "algorithm": {"name": algorithm, "config": config},
        "quantization": "none",
    }
    return [{"id": f"{share:g}", "adaptation_goal": {"FLOP": f"{share}x"}, **common} for share in SHARES]


def descent_of(job: Job) -> Descent:
    """Return the results of a job.

    Raises:
        RuntimeError: A goal has no package.
    """
    lacking = [goal for goal in job.goals if goal.accuracy is None]
    if job.state is not JobState.DONE or lacking:
        reasons = "; ".join(f"{goal.id}: {goal.reason}" for goal in lacking)
        raise RuntimeError(f"{job.id} is {job.state.value}: {job.reason or reasons}")
    return Descent(
        {float(goal.id): 100 * (goal.accuracy or 0.0) for goal in job.goals},
        sum(goal.steps for goal in job.goals)
        + sum(steps for source in job.sources for steps in source.preparing_steps.values()),
        job.seconds,
        tuple(goal.algorithm for goal in job.goals),
    )


def _source(
    network: str, data: Path, directory: Path, seed: int
) -> tuple[ModelSource, DataSource, dict[str, object]]:
    if network == "snips":
        return *snips.prepare(data, directory, seed), dict(snips.SETTINGS)
    files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
    if network == "mobilenet":
        path = directory / "mobilenet.keras"
        mobilenet().save(path)
        return ModelSource(path=str(path)), files, {}
    return ModelSource(path=str(data / RESNET8)), files, {}


def _table(title: str, descents: Mapping[str, Sequence[Descent]]) -> Table:
    table = Table(title=f"{title}: accuracy in percent, medians", title_justify="left")
    for column in ("algorithm", *(f"{share:g}x" for share in SHARES), "mean", "steps", "seconds"):
        table.add_column(column, justify="right")
    for algorithm, runs in descents.items():
        *accuracies, steps, seconds = figures_of(title, {algorithm: runs}).values()
        table.add_row(
            algorithm, *(f"{figure:.1f}" for figure in accuracies), f"{steps:,.0f}", f"{seconds:.0f}"
        )
    chosen = [f"{AUTO}: {', '.join(run.algorithms)}" for run in descents[AUTO]]
    table.caption = "\n".join(chosen)
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=NETWORKS, help="port only this network")
    parser.add_argument(
        "--steps", type=int, metavar="N", default=600, help="maximum number of training steps per goal"
    )
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.executors", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
