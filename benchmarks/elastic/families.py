"""The operator families of CrowdHMTware: each one alone, and whole networks against AdaptiveNet's defaults.

`python -m benchmarks.elastic.families --data DIR [--network {mobilenet13,resnet20}] [--seeds N ...]
[--checkpoint DIR] [--quick] [--json FILE]`

A network is trained from scratch on CIFAR-10's training file, with flips and shifts.

- Families: a supernet has variants of every family, and shrunk blocks for comparison. For each family, the
  table has the mean over all blocks of a variant's latency in LiteRT, as a share of that of the block it
  replaces, and of the points of accuracy that the network loses with this one variant: as initialized in
  closed form, and after distillation. The accuracies are measured on a part of the test file.
- Whole networks: `adaptivenet` and `crowdhmt` prepare a supernet, each with its default variants, and both
  with 300 and 900 steps instead of 600 and 2,400. The blocks are packaged and measured, and the device's
  search finds the best network within shares of the original latency, on the validation data. Accuracies are
  measured on the test file. A share that one side cannot reach does not count in the mean. Times are CPU
  times of the preparation, with one thread.
- Latencies: the blocks of `crowdhmt` that are not in the original network, as a device expects them before it
  downloads and measures them.

The data DIR has `cifar10/train.npz` and `cifar10/test.npz`. `--checkpoint DIR` keeps the trained networks and
reuses them. The default is one seed, because each takes half an hour for a network. `--quick` uses a small
ResNet and few steps; its results say nothing about the targets.
"""

import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple

import keras
import numpy as np
from rich.table import Table

from benchmarks.elastic.networks import NETWORKS
from benchmarks.elastic.trained import add_options, measure_networks, trained_porting
from benchmarks.harness.run import (
    Figures,
    Target,
    run_with_one_thread,
)
from benchmarks.harness.worker import Porting
from executors.algorithms.adaptivenet.executor import AdaptiveNetExecutor
from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.algorithms.adaptivenet.parts import supernet_blocks
from executors.algorithms.adaptivenet.space import Subnet
from executors.algorithms.adaptivenet.supernet import Supernet, TrainedSupernet
from executors.algorithms.crowdhmt.executor import CrowdHmtExecutor
from executors.algorithms.crowdhmt.params import CrowdHmtParams
from executors.contract.assignment import Assignment
from executors.contract.preparation import PreparationProgress
from executors.data import Dataset
from executors.structure import analyse
from executors.training.evaluation import Evaluation
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.quantization import Quantization
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify.package.training import OutputEncoding
from mistify_client.subnets.block_latencies import LatencyTable, latency_table
from mistify_client.subnets.expected_latencies import expected_latencies_ms
from mistify_client.subnets.scoring.reuse import GroupEvaluation
from mistify_client.subnets.scoring.scores import SubnetScorer
from mistify_client.subnets.search.additive import fastest
from mistify_client.subnets.search.candidates import Scorer, SubnetScore
from mistify_client.subnets.search.strategies import Strategy, search
from mistify_client.subnets.space import Subnet as DeviceSubnet
from mistify_client.subnets.space import SubnetSpace
from mistify_client.subnets.worthwhile import worthwhile
from mistify_server.worker.packaging.conversion.blocks import block_store

#: The limits on latency, as shares of the original network's.
SHARES: Final = (0.75, 0.5, 0.35)

#: Every family, with the amount that is measured.
FAMILIES: Final[dict[str, list[float]]] = {
    "depth": [3],
    "fire": [0.5],
    "ghost": [0.5],
    "kernel": [1],
    "low-rank": [0.5],
    "noise": [0.5],
    "resolution": [0.5],
    "separable": [1],
}

TARGETS: Final[dict[str, Target]] = {
    f"{network}_{figure}": {"what": f"{network}: {what}", bound: value, "full_run_only": True}  # type: ignore[misc]
    for network in NETWORKS
    for figure, what, bound, value in (
        (
            "gained",
            "mean accuracy gain over `adaptivenet` at the shares of the latency, points",
            "min",
            1.0,
        ),
        ("preparing", "preparing time relative to `adaptivenet`", "max", 1.6),
    )
}

#: Test examples for the table of families, and validation examples for the search.
_FAMILY_EXAMPLES: Final = 500
_SEARCHED: Final = 500


class Extent(NamedTuple):
    """The size of a run.

    Attributes:
        source: Training steps of the source.
        distil: Training steps of the first stage of a supernet.
        paths: Training steps of the second stage.
        seconds: Measuring time for each block.
        largest: The largest share of a network in a block.
        tested: Number of test examples.
    """

    source: int
    distil: int
    paths: int
    seconds: float
    largest: float
    tested: int


FULL: Final = Extent(1_600, 300, 900, 0.2, 0.1, 4_000)
QUICK: Final = Extent(20, 4, 4, 0.02, 0.5, 100)


class Family(NamedTuple):
    """Means over the variants of a family.

    Attributes:
        latency: Share of the latency of the replaced blocks.
        closed: Points of accuracy lost with one variant in closed form.
        trained: Points of accuracy lost with one variant after distillation.
    """

    latency: float
    closed: float
    trained: float


class Side(NamedTuple):
    """The networks of one supernet.

    Attributes:
        accuracies: Share of the latency -> accuracy on the test file, in percent; without shares that cannot
            be reached.
        seconds: CPU seconds of the preparation.
        latency_error: Error of the latencies that a device expects of all blocks after measuring those of the
            original network: standard deviation of their natural logarithms.
        proportional_error: The same for latencies proportional to multiply-adds.
    """

    accuracies: Mapping[float, float]
    seconds: float
    latency_error: float
    proportional_error: float


class Run(NamedTuple):
    """The results with one seed."""

    families: Mapping[str, Family]
    adaptivenet: Side
    crowdhmt: Side


def measure(options: Namespace) -> Figures:
    """Measure with each seed, print the tables and return the medians."""
    extent = QUICK if options.quick else FULL
    return measure_networks(
        options, partial(measured, extent=extent, checkpoint=options.checkpoint), _tables, figures_of
    )


def measured(
    network: keras.Model, data: Path, seed: int, *, extent: Extent, checkpoint: Path | None = None
) -> Run:
    """Train a network, and measure the families and both sides.

    Args:
        checkpoint: The directory for trained networks; None to forget them.
    """
    with TemporaryDirectory() as directory:
        porting = trained_porting(
            network, data, Path(directory), steps=extent.source, seed=seed, kept=checkpoint
        )
        assignment, test = _assignment(porting, seed), porting.test()
    test = test.subset(np.arange(min(len(test), extent.tested)))
    steps = {"distil_steps": extent.distil, "path_steps": extent.paths}
    own = {**steps, "largest": extent.largest, "seed": seed}
    params = AdaptiveNetParams.model_validate(own), CrowdHmtParams.model_validate(own)
    families = measured_families(assignment, test, extent)
    return Run(families, *(measured_side(assignment, one, test, extent) for one in params))


def figures_of(runs: Sequence[Run]) -> dict[str, float]:
    """Return medians over the seeds."""
    figures = {
        "gained": median(mean(_gains(run).values()) for run in runs if _gains(run)),
        "preparing": median(run.crowdhmt.seconds / run.adaptivenet.seconds for run in runs),
    }
    for share in SHARES:
        gains = [_gains(run)[share] for run in runs if share in _gains(run)]
        if gains:
            figures[f"gained_at_{share}"] = median(gains)
        for side in ("adaptivenet", "crowdhmt"):
            reached = [getattr(run, side).accuracies.get(share) for run in runs]
            if None not in reached:
                figures[f"{side}_at_{share}"] = median(reached)
    for field in ("latency_error", "proportional_error"):
        figures[field] = median(getattr(run.crowdhmt, field) for run in runs)
    for name in runs[0].families:
        for field in Family._fields:
            figures[f"{name}_{field}"] = median(getattr(run.families[name], field) for run in runs)
    return figures


def _gains(run: Run) -> dict[float, float]:
    """Return the points gained over AdaptiveNet by share of the latency, where both sides have a network."""
    own, other = run.crowdhmt.accuracies, run.adaptivenet.accuracies
    return {share: own[share] - other[share] for share in own if share in other}


def _assignment(porting: Porting, seed: int) -> Assignment:
    """Return the assignment of the supernet of a trained network."""
    source, (train, validation) = porting.source(), porting.learning()
    teacher = Evaluation(source).outputs(train.inputs)
    setup = TrainingSetup(train, validation, teacher, TrainingParams())
    return Assignment(source, {}, (), setup, seed, analyse(source))


def measured_families(assignment: Assignment, test: Dataset, extent: Extent) -> dict[str, Family]:
    """Return the means of every family."""
    examples = test.subset(np.arange(min(len(test), _FAMILY_EXAMPLES)))
    own = {"merge": [], "shrink": [0.5], "variants": FAMILIES, "path_steps": 0, "largest": extent.largest}
    closed, trained = (
        _prepared(assignment, AdaptiveNetParams.model_validate({**own, "distil_steps": steps}))
        for steps in (0, extent.distil)
    )
    space = trained.supernet.space
    with TemporaryDirectory() as directory:
        table, store = _packaged(trained, Path(directory), extent)
    whole = _accuracy(trained.supernet, space.original, examples)
    by_kind = defaultdict[str, list[Family]](list)
    for number, place in enumerate(space.places[space.blocks :], space.blocks):
        replaced = sum(table.of(store.variants[block]) for block in range(place.start, place.end))
        lost = (
            whole - _accuracy(one.supernet, space.with_one(number), examples) for one in (closed, trained)
        )
        family = Family(table.of(store.variants[number]) / replaced, *lost)
        by_kind[place.name.split("-", 2)[2].rsplit("-", 1)[0]].append(family)
    return {
        name: Family(*(mean(one[field] for one in each) for field in range(len(Family._fields))))
        for name, each in sorted(by_kind.items())
    }


def measured_side(assignment: Assignment, params: AdaptiveNetParams, test: Dataset, extent: Extent) -> Side:
    """Prepare a supernet, and search for networks within each share of the latency."""
    start = process_time()
    trained = _prepared(assignment, params)
    seconds = process_time() - start
    searched = assignment.setup.validation.sample(_SEARCHED)
    numbers = {f"{place.name}.tflite": at for at, place in enumerate(trained.supernet.space.places)}
    accuracies = {}
    with TemporaryDirectory() as directory:
        table, store = _packaged(trained, Path(directory), extent)
        errors = latency_errors(SubnetSpace(store), table)
        space = SubnetSpace(worthwhile(SubnetSpace(store), table))
        with BlockFiles(Path(directory)) as files:
            evaluation = GroupEvaluation(files, space.store, table, searched.inputs)
            scorer = _once(SubnetScorer(evaluation, space.store, space.original, searched.targets))
            for share in SHARES:
                budget_ms = share * table.latency_ms(space.original)
                if table.latency_ms(fastest(space, table)) <= budget_ms:
                    candidates = search(space, table, scorer, budget_ms, Strategy.ADDITIVE)
                    within = [one for one in candidates if one.latency_ms <= budget_ms]
                    best = max(within, key=lambda one: one.score.worth)
                    subnet = tuple(numbers[block.file] for block in best.subnet)
                    accuracies[share] = _accuracy(trained.supernet, subnet, test)
    return Side(accuracies, seconds, *errors)


def latency_errors(space: SubnetSpace, table: LatencyTable) -> tuple[float, float]:
    """Return the errors of expected latencies, and of those proportional to multiply-adds; see `Side`."""
    others = [block for block in space.variants if block not in space.original]
    measured_ms = np.array([table.of(block) for block in others])
    expected = expected_latencies_ms(space.store, table, space.original)
    expected_ms = np.array([expected[block] for block in others])
    multiply_adds = np.array([block.estimate.flops if block.estimate else 1 for block in others])
    error, proportional = (
        float(np.std(np.log(guess / measured_ms))) for guess in (expected_ms, multiply_adds)
    )
    return error, proportional


def _once(scorer: Scorer) -> Scorer:
    """Return a scorer that scores each subnet once for all searches."""
    known: dict[DeviceSubnet, SubnetScore] = {}

    def scores(subnets: Sequence[DeviceSubnet]) -> list[SubnetScore]:
        new = [subnet for subnet in subnets if subnet not in known]
        known.update(zip(new, scorer(new) if new else (), strict=True))
        return [known[subnet] for subnet in subnets]

    return scores


def _prepared(assignment: Assignment, params: AdaptiveNetParams) -> TrainedSupernet:
    """Prepare the supernet of the algorithm to which the settings belong."""
    algorithm = CrowdHmtExecutor if isinstance(params, CrowdHmtParams) else AdaptiveNetExecutor
    content = algorithm(params).prepare(assignment, PreparationProgress())
    return Supernet.loaded(content, assignment.source, params.largest)


def _packaged(trained: TrainedSupernet, directory: Path, extent: Extent) -> tuple[LatencyTable, BlockStore]:
    """Write the blocks of a supernet in float32, and measure them with one thread."""
    kinds = {"class": OutputEncoding.SOFTMAX}
    for name, content in block_store(supernet_blocks(trained), Quantization.NONE, kinds=kinds).items():
        (directory / name).write_bytes(content)
    store = BlockStore.load(directory)
    with BlockFiles(directory) as files:
        return latency_table(files, store, directory, threads=1, seconds=extent.seconds), store


def _accuracy(supernet: Supernet, subnet: Subnet, data: Dataset) -> float:
    """Return the accuracy of a subnet in percent."""
    (outputs,) = supernet.predictions(data.inputs, subnet).values()
    (classes,) = data.targets.values()
    return 100 * float(np.mean(outputs.argmax(1) == classes))


def _tables(title: str, run: Run) -> list[Table]:
    families = Table(title=f"{title}: one variant, means over all blocks", title_justify="left")
    for column in ("family", "latency", "points lost in closed form", "after distillation"):
        families.add_column(column, justify="right")
    for name, one in run.families.items():
        families.add_row(name, f"{one.latency:.2f}", f"{one.closed:.1f}", f"{one.trained:.1f}")
    whole = Table(title=f"{title}: accuracy within shares of the latency", title_justify="left")
    for column in ("side", *(f"{share:g}x" for share in SHARES), "CPU s"):
        whole.add_column(column, justify="right")
    for name in ("adaptivenet", "crowdhmt"):
        side: Side = getattr(run, name)
        cells = (f"{side.accuracies[share]:.1f}" if share in side.accuracies else "-" for share in SHARES)
        whole.add_row(name, *cells, f"{side.seconds:,.0f}")
    return [families, whole]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("elastic.families", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
