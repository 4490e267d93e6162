"""Accuracy of adaptation algorithms at equal steps, and the time they take.

`python -m benchmarks.executors --data DIR [--network {resnet8,snips}] [--steps N] [--seeds N] [--quick]
[--json FILE]`

MLPerf Tiny's ResNet-8 on CIFAR-10 and the encoder of `benchmarks.snips` are tuned on their data once for each
seed; then every algorithm goes down the same path of goals, one from the other, with the same training steps
for each goal. A time holds all that an algorithm does: preparing, searching, training. For `auto` each goal
has what that algorithm has reached there which a server chooses for the edge that has seen nothing yet.

`--quick` trains with few steps, of one seed: it shows that all works, its networks are far less accurate.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log2
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

import keras
from rich.console import Console
from rich.table import Table

from benchmarks import snips
from benchmarks.harness import Figures, Target, add_data_option, data_with, run
from benchmarks.porting import FILES, RESNET8, TEST, TRAIN, Porting
from executors.structure import analyse
from mistify.config.porting import AUTO
from mistify_server.planning.forecast.choice import Chooser, Edge
from mistify_server.planning.forecast.experience import Experience
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.inspection.estimates import estimates_of
from mistify_server.worker.params import params_of

ALGORITHMS: Final = ("morphnet", "chamnet", "random", "uniform")
NETWORKS: Final = ("resnet8", "snips")
SHARES: Final = (0.75, 0.5, 0.25, 0.125)

_QUICK_SETTINGS: Final[dict[str, object]] = {"source_steps": 40}
_QUICK_STEPS: Final = 30

AUTO_SHORT: Final = "{network}_auto_short"

#: Points that the mean over the goals is below that of the best algorithm where the server chooses.
TARGETS: Final[dict[str, Target]] = {
    AUTO_SHORT.format(network=network): {"max": 0.5, "full_run_only": True} for network in NETWORKS
}


class Descent(NamedTuple):
    """The results of one algorithm with one seed.

    Attributes:
        accuracy: In percent, by the goals' shares.
        seconds: Preparing included.
    """

    accuracy: Mapping[float, float]
    seconds: float


def measure(options: Namespace) -> Figures:
    """Run every algorithm on every network, print the tables and return the figures."""
    data = data_with({*FILES, *snips.FILES}, options)
    figures: dict[str, float] = {}
    for network in [options.network] if options.network else NETWORKS:
        descents: dict[str, list[Descent]] = {algorithm: [] for algorithm in (*ALGORITHMS, AUTO)}
        for seed in range(1 if options.quick else options.seeds):
            with TemporaryDirectory() as directory:
                for algorithm, descent in _descents(network, data, Path(directory), seed, options).items():
                    descents[algorithm].append(descent)
            Console(stderr=True).print(_table(f"{network}, seeds 0 to {seed}", descents))
        Console().print(_table(network, descents))
        figures |= figures_of(network, descents)
        best = max(figures[f"{network}_{algorithm}_mean"] for algorithm in ALGORITHMS)
        figures[AUTO_SHORT.format(network=network)] = best - figures[f"{network}_{AUTO}_mean"]
    return {} if options.quick else figures


def figures_of(network: str, descents: Mapping[str, Sequence[Descent]]) -> Figures:
    """Return medians over the seeds, of each goal and of the mean over the goals."""
    figures = {}
    for algorithm, runs in descents.items():
        name = f"{network}_{algorithm}"
        for share in SHARES:
            figures[f"{name}_at_{share:g}"] = median(descent.accuracy[share] for descent in runs)
        figures[f"{name}_mean"] = median(sum(run.accuracy.values()) / len(SHARES) for run in runs)
        figures[f"{name}_seconds"] = median(descent.seconds for descent in runs)
    return figures


def _descents(network: str, data: Path, directory: Path, seed: int, options: Namespace) -> dict[str, Descent]:
    model, files, settings = _source(network, data, directory, seed)
    settings |= {"seed": seed} | (_QUICK_SETTINGS if options.quick else {})
    tuned = Porting(model, files, directory, settings).tuned
    steps = dict.fromkeys(SHARES, _QUICK_STEPS if options.quick else options.steps)
    descents = {}
    for algorithm in ALGORITHMS:
        start = perf_counter()
        cuts = params_of(algorithm, {}).model_dump()["cuts"]
        porting = Porting(
            tuned, files, directory, settings | {"source_steps": 0}, algorithm=algorithm, cuts=cuts
        )
        reached = porting.collective(steps)
        accuracy = {share: goal.accuracy for share, goal in reached.items()}
        descents[algorithm] = Descent(accuracy, perf_counter() - start)
    chosen = _choices(tuned, files, settings)
    accuracy = {share: descents[algorithm].accuracy[share] for share, algorithm in chosen.items()}
    return descents | {
        AUTO: Descent(accuracy, max(descents[algorithm].seconds for algorithm in chosen.values()))
    }


def _choices(tuned: ModelSource, files: DataSource, settings: dict[str, object]) -> dict[float, str]:
    """Return the algorithm that `auto` chooses for each edge of the path, by share."""
    task = InspectTask(model=tuned, data=files, algorithm=AUTO, algorithm_config=settings, hardware={})
    network = keras.models.load_model(tuned.path, compile=False)
    estimates = estimates_of(analyse(network), task, ())
    candidates = estimates.candidates
    choose = Chooser(estimates.traits, "", candidates, Experience([], candidates))
    path = pairwise((1.0, *SHARES))
    edges = {share: Edge(-log2(share), log2(before / share), before) for before, share in path}
    choices = choose(list(edges.values()))
    return {share: choice.algorithm for share, choice in zip(edges, choices, strict=True)}


def _source(
    network: str, data: Path, directory: Path, seed: int
) -> tuple[ModelSource, DataSource, dict[str, object]]:
    if network == "snips":
        return *snips.prepare(data, directory, seed), dict(snips.SETTINGS)
    files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
    return ModelSource(path=str(data / RESNET8)), files, {}


def _table(title: str, descents: Mapping[str, Sequence[Descent]]) -> Table:
    table = Table(title=f"{title}: accuracy in percent, medians", title_justify="left")
    for column in ("algorithm", *(f"{share:g}x" for share in SHARES), "mean", "seconds"):
        table.add_column(column, justify="right")
    for algorithm, runs in descents.items():
        figures = figures_of(title, {algorithm: runs}).values()
        table.add_row(algorithm, *(f"{figure:.1f}" for figure in figures))
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=NETWORKS, help="this one alone")
    parser.add_argument("--steps", type=int, metavar="N", default=600, help="training steps of each goal")
    parser.add_argument("--seeds", type=int, metavar="N", default=1, help="repeat with so many seeds")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("executors", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
