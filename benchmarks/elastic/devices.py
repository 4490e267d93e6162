"""Subnets selected by devices on their own data, compared with the server's choice for all (AdaptiveNet 7.4).

`python -m benchmarks.elastic.devices --data DIR [--checkpoint DIR] [--seeds N ...] [--quick] [--json FILE]`

A ResNet-20 and its supernet are trained on CIFAR-10's training file for as many steps as in
`elastic.quality`, and packaged in int8 (`elastic.stores`). Ten devices have images of the test file, which
the server has used neither for training nor for selection. The class shares of a device follow a Dirichlet
distribution with concentration 0.1, so that most of its images have one to three classes. Each device has up
to 1,000 images, or fewer if the file has no more of its classes. It searches on 200 of them, or half, and
holds out the others.

The server's choice is the subnet that its executor selects for half of the multiply-adds. A device's limit is
the latency of that subnet according to a latency table measured on this machine, and it searches as `mistify
adapt` does. The figures are the gain in accuracy of a device's choice on its held-out data, in points, and
the number of devices, of ten, with a gain.

Part of the gain is due to the table and the search, which the server does not have. Therefore `evenly` is the
choice of the same search within the same limit on 500 images of all classes, as many as the server's executor
uses and more diverse than those of any device. `fetched` is a device's choice among the blocks that `mistify
adapt` fetches. Everything is repeated with other devices for each seed; results are medians over the seeds.

DIR has `cifar10/train.npz` and `cifar10/test.npz`. `--quick` uses a smaller network, few steps and one seed.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.stores import TRAINED, PortedBlocks, add_options, device_examples, ported_blocks
from benchmarks.harness.run import Figures, Target, run, seeds_of
from mistify_client.examples import Examples
from mistify_client.subnets.block_downloads import promising
from mistify_client.subnets.block_latencies import LatencyTable, latency_table
from mistify_client.subnets.scoring.reuse import GroupEvaluation
from mistify_client.subnets.scoring.scores import SubnetScorer
from mistify_client.subnets.search.candidates import best_entries
from mistify_client.subnets.search.strategies import search
from mistify_client.subnets.space import Subnet, SubnetSpace

DEVICES: Final = 10

#: Concentration of the Dirichlet distribution of classes: with smaller values, a device has fewer classes.
CONCENTRATION: Final = 0.1

#: Maximum number of a device's images, and of those that it searches on.
IMAGES: Final = 1_000
SEARCHED: Final = 200

#: Number of images for the search on all classes.
EVENLY: Final = 500

#: The goal of the server, as a share of the multiply-adds.
SHARE: Final = 0.5

TARGETS: Final[dict[str, Target]] = {
    "devices_better_of_ten": {
        "what": "devices (of ten) that choose better than the server",
        "min": 6.0,
        "full_run_only": True,
    },
    "points_gained": {
        "what": "accuracy gain over the server's choice, mean over the devices, points",
        "min": 0.5,
        "full_run_only": True,
    },
    # Subnets far from the network prefer some classes each, so that any selection by class gains much.
    "server_below_network": {
        "what": "accuracy loss of the server's choice against the original network, all images, points",
        "max": 3.0,
        "full_run_only": True,
    },
}

Rows = npt.NDArray[np.int64]


class Gain(NamedTuple):
    """The gain of choices over the server's choice on a device's held-out data, in points.

    Attributes:
        own: Gain of the device's choice.
        evenly: Gain of the choice made with images of all classes.
        fetched: Gain of the device's choice among the blocks that it fetches.
        server: Accuracy of the server's choice, in percent.
        images: Number of held-out images.
    """

    own: float
    evenly: float
    fetched: float
    server: float
    images: int


class Chooser:
    """Searches a store within the latency of the server's choice.

    Args:
        ported: The blocks, and the server's choice.
        table: Latencies of the blocks.
    """

    def __init__(self, ported: PortedBlocks, table: LatencyTable) -> None:
        self._files = ported.files
        self._store = ported.store
        self._space = SubnetSpace(self._store)
        self._table = table
        self.server = self._subnet(ported.choices[SHARE])
        self.network: Subnet = tuple(self._space.original)
        self._budget_ms = table.latency_ms(self.server)
        measured = {one.content.sha256: table.of(one) for one in self._space.original}
        before = table.model_copy(update={"latencies_ms": measured})
        fetched = {*self._space.original, *(self._space.served or ())}
        fetched |= promising(self._space, before, self._budget_ms)
        self._fetched = SubnetSpace(self._store.only({one.file for one in fetched}))
        sizes = {one: one.content.size for one in self._space.variants}
        self.share_fetched = sum(sizes[one] for one in fetched) / sum(sizes.values())

    def chosen(self, data: Examples, *, of_all: bool = True) -> Subnet:
        """Return the device's choice for its data, among all blocks or those that it fetches."""
        space = self._space if of_all else self._fetched
        candidates = search(space, self._table, self._scorer(data), self._budget_ms)
        fitting = [one for one in candidates if one.latency_ms <= self._budget_ms]
        return self._subnet(best_entries(fitting)[-1].files)

    def accuracies(self, subnets: Sequence[Subnet], data: Examples) -> list[float]:
        """Return the accuracies of subnets in percent."""
        different = list(dict.fromkeys(subnets))
        scores = dict(zip(different, self._scorer(data)(different), strict=True))
        return [100 * scores[subnet].accuracy for subnet in subnets]

    def _subnet(self, files: Sequence[str]) -> Subnet:
        return tuple(self._store.network_of(files))

    def _scorer(self, data: Examples) -> SubnetScorer:
        evaluation = GroupEvaluation(self._files, self._store, self._table, data.inputs)
        return SubnetScorer(evaluation, self._store, self._space.original, data.targets)


def measure(options: Namespace) -> Figures:
    """Let devices choose with each seed, print the tables and return the medians."""
    with ported_blocks(options, TRAINED) as ported, TemporaryDirectory() as state:
        table = latency_table(ported.files, ported.store, Path(state), threads=1)
        chooser, data = Chooser(ported, table), device_examples(options, ported.store)
        network, server = chooser.accuracies([chooser.network, chooser.server], data)
        runs = []
        for seed in seeds_of(options):
            runs.append(_gains(chooser, data, seed))
            Console().print(_table(seed, runs[-1]))
        figures = {
            **figures_of(runs),
            "server_below_network": network - server,
            "share_of_bytes_fetched": chooser.share_fetched,
        }
    return {name: figure for name, figure in figures.items() if not (options.quick and name in TARGETS)}


def figures_of(runs: Sequence[Sequence[Gain]]) -> dict[str, float]:
    """Return medians over the seeds."""
    return {
        "devices_better_of_ten": median(10 * mean(gain.own > 0 for gain in run) for run in runs),
        "points_gained": median(mean(gain.own for gain in run) for run in runs),
        "points_lost_by_fetching_less": median(mean(gain.own - gain.fetched for gain in run) for run in runs),
        "points_gained_evenly": median(mean(gain.evenly for gain in run) for run in runs),
        "devices_better_than_evenly_of_ten": median(
            10 * mean(gain.own > gain.evenly for gain in run) for run in runs
        ),
        "least_gained": min(gain.own for run in runs for gain in run),
    }


def evenly_divided(classes: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return rows with equally many images of each class, and all other rows."""
    labels = np.unique(classes)
    drawn = [rng.permutation(np.flatnonzero(classes == label))[: EVENLY // len(labels)] for label in labels]
    evenly = np.concatenate(drawn)
    return evenly, np.setdiff1d(np.arange(len(classes)), evenly)


def rows_of_a_device(classes: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Draw the images of a device; return the rows to search on, and the held-out rows.

    Args:
        classes: Class -> rows of all its images.
        rng: Draws the class shares and the images.
    """
    labels, counts = np.unique(classes, return_counts=True)
    shares = rng.dirichlet([CONCENTRATION] * len(labels))
    images = min(IMAGES, (counts / np.maximum(shares, np.finfo(float).tiny)).min())
    drawn = [
        rng.permutation(np.flatnonzero(classes == label))[: round(images * share)]
        for label, share in zip(labels, shares, strict=True)
    ]
    rows = rng.permutation(np.concatenate(drawn))
    searched = min(SEARCHED, len(rows) // 2)
    return rows[:searched], rows[searched:]


def _gains(chooser: Chooser, data: Examples, seed: int) -> list[Gain]:
    rng = np.random.default_rng(seed)
    (classes,) = data.targets.values()
    evenly, others = evenly_divided(classes, rng)
    of_all = chooser.chosen(data.subset(evenly))
    gains = []
    for _ in range(DEVICES):
        searched, held_out = (others[rows] for rows in rows_of_a_device(classes[others], rng))
        own_data = data.subset(searched)
        choices = [chooser.chosen(own_data), of_all, chooser.chosen(own_data, of_all=False)]
        server, *reached = chooser.accuracies([chooser.server, *choices], data.subset(held_out))
        own, even, fetched = (accuracy - server for accuracy in reached)
        gains.append(Gain(own, even, fetched, server, len(held_out)))
    return gains


def _table(seed: int, gains: Sequence[Gain]) -> Table:
    table = Table(title=f"seed {seed}: percent on the data held out", title_justify="left")
    for column in (
        "device",
        "images",
        "server's choice",
        "own choice",
        "with even data",
        "of fetched blocks",
    ):
        table.add_column(column, justify="right")
    for number, gain in enumerate(gains):
        gained = (0.0, gain.own, gain.evenly, gain.fetched)
        accuracies = [gain.server + points for points in gained]
        table.add_row(str(number), str(gain.images), *(f"{accuracy:.1f}" for accuracy in accuracies))
    return table


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("elastic.devices", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
