"""The on-device search for a subnet, compared with conventional architecture search (AdaptiveNet 7.6).

`python -m benchmarks.elastic.search --data DIR [--checkpoint DIR] [--seeds N ...] [--quick] [--json FILE]`

A ResNet-20 and its supernet are trained on CIFAR-10's training file, and packaged in int8 (`elastic.stores`).
For each seed, 500 images of the test file are the data of a device; the others are held out. The limit is 0.6
of the original network's latency according to the device's latency table. The searches are

- `evolution` and `annealing` in their conventional form: mutations ignore the latency, and subnets are loaded
  one
  by one and run on all images. They score as many subnets as in the paper, 3,100 and 1,800.
- `paper`: evolution that stays near the budget, with shared prefixes computed once, and all subnets of a
  generation run batch by batch; 800 subnets.
- `additive`: the search of `mistify adapt`.

Times are CPU seconds with one thread from the start of the search, without measuring the table. To compare
the times of two searches at equal accuracy, the target is the lower of the two final accuracies on the
held-out data. A search has reached it at the time from which on its choice, the best so far on the search
data, never falls below it. The held-out data are used for nothing else. As conventional search may end with a
lower accuracy, a second figure uses the accuracy of the faster search as the target: if the slower one never
reaches it, all of its time counts, and the figure is a lower bound.

The factors of the speedup are measured separately: the ratio of subnets that `paper` scores for the same
accuracy; the speedup of scoring 50 subnets near the budget batch by batch instead of one by one; and the
speedup of computing shared prefixes once, for 50, 100 and 200 subnets. Both sides of these are measured
alternately.

DIR has `cifar10/train.npz` and `cifar10/test.npz`. Seeds are independent, and can be run separately.
`--quick` uses a smaller network, few steps, one seed, and a tenth of the subnets; its results say nothing
about the targets.
"""

import sys
from argparse import Namespace
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.stores import PortedBlocks, add_options, device_examples, ported_blocks
from benchmarks.harness.run import Figures, Target, paired_ratio, run, seeds_of
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify_client.examples import Examples
from mistify_client.subnets.block_latencies import LatencyTable, latency_table
from mistify_client.subnets.scoring.reuse import FEATURE_BYTES, GroupEvaluation
from mistify_client.subnets.scoring.scores import SubnetScorer
from mistify_client.subnets.search.candidates import Candidate, Scorer, SubnetScore
from mistify_client.subnets.search.neighbourhood import NearbyMoves
from mistify_client.subnets.search.strategies import Strategy, search
from mistify_client.subnets.space import Subnet, SubnetSpace

#: The budget, as a share of the original network's latency.
BUDGET: Final = 0.6

#: Number of images for the search.
SEARCHED: Final = 500

#: Group sizes for which scoring is timed.
GROUPS: Final = (50, 100, 200)

#: Number of subnets that a search scores together.
GENERATION: Final = 50

EVOLUTION, ANNEALING, PAPER, ADDITIVE = "evolution", "annealing", "paper", "additive"

TARGETS: Final[dict[str, Target]] = {
    **{
        f"{slow}_over_{fast}_seconds": {
            "what": f"speedup of `{fast}` over conventional {slow} at equal accuracy",
            "min": least,
            "full_run_only": True,
        }
        for fast in ("paper", "additive")
        for slow, least in (("annealing", 6.5), ("evolution", 14.0))
    },
    "additive_over_paper_subnets": {
        "what": "subnets scored by `additive` relative to `paper`",
        "max": 1 / 6,
        "full_run_only": True,
    },
    "saved_runs_of_200": {
        "what": "share of block runs saved by reuse, 200 subnets",
        "min": 0.35,
        "full_run_only": True,
    },
    "saved_seconds_of_200": {
        "what": "share of the time saved by reuse, 200 subnets",
        "min": 0.35,
        "full_run_only": True,
    },
}

_QUICK_SHARE: Final = 10
_REPETITIONS: Final = 3


class Side(NamedTuple):
    """A search to compare.

    Attributes:
        strategy: The strategy of the search.
        most: Maximum number of subnets that it scores.
        usual: Whether it is conventional: mutations ignore the latency, and subnets are scored one by one.
    """

    strategy: Strategy
    most: int
    usual: bool


SIDES: Final[dict[str, Side]] = {
    EVOLUTION: Side(Strategy.EVOLUTION, 3_100, usual=True),
    ANNEALING: Side(Strategy.ANNEALING, 1_800, usual=True),
    PAPER: Side(Strategy.EVOLUTION, 800, usual=False),
    ADDITIVE: Side(Strategy.ADDITIVE, 800, usual=False),
}


class Moment(NamedTuple):
    """A change of the best subnet so far, or the end of a search.

    Attributes:
        seconds: Time since the start of the search.
        subnets: Number of subnets scored by then.
        accuracy: Accuracy of the best subnet on the held-out data.
    """

    seconds: float
    subnets: int
    accuracy: float


class Device(NamedTuple):
    """The blocks and data of a search.

    Attributes:
        files: Files of the blocks.
        store: Manifest of the blocks.
        space: Subnets of the blocks.
        table: Latencies of the blocks.
        searched: Data for the search.
        held_out: Data that are not used for the search.
    """

    files: BlockFiles
    store: BlockStore
    space: SubnetSpace
    table: LatencyTable
    searched: Examples
    held_out: Examples

    @property
    def budget_ms(self) -> float:
        """The maximum latency of a subnet."""
        return BUDGET * self.table.latency_ms(self.space.original)

    def evaluation(self, feature_bytes: int = FEATURE_BYTES) -> GroupEvaluation:
        """Return an evaluation of subnet groups on the search data, with a memory limit for features."""
        return GroupEvaluation(
            self.files, self.store, self.table, self.searched.inputs, feature_bytes=feature_bytes
        )

    def scorer(self, data: Examples) -> SubnetScorer:
        """Return a scorer for groups of subnets, with the product's settings."""
        evaluation = GroupEvaluation(self.files, self.store, self.table, data.inputs)
        return SubnetScorer(evaluation, self.store, self.space.original, data.targets)


def measure(options: Namespace) -> Figures:
    """Search with each seed, print the tables and return the medians."""
    with ported_blocks(options) as ported:
        runs = []
        for seed in seeds_of(options):
            device = _device(ported, device_examples(options, ported.store), seed)
            runs.append(
                {name: _searched(device, _shortened(side, options), seed) for name, side in SIDES.items()}
            )
            Console().print(_table(seed, runs[-1]))
        figures = figures_of(runs) | _factors(device)
    return {name: figure for name, figure in figures.items() if not (options.quick and name in TARGETS)}


def figures_of(runs: Sequence[Mapping[str, Sequence[Moment]]]) -> dict[str, float]:
    """Return medians over the seeds of the comparisons."""
    figures: dict[str, float] = {}
    for slow, fast in (
        (ANNEALING, PAPER), (EVOLUTION, PAPER), (ANNEALING, ADDITIVE), (EVOLUTION, ADDITIVE),
        (ADDITIVE, PAPER),
    ):  # fmt: skip
        pairs = [reached_by(run[slow], run[fast]) for run in runs]
        for name in ("seconds", "subnets"):
            ratios = [getattr(a, name) / getattr(b, name) for a, b in pairs]
            figures[f"{slow}_over_{fast}_{name}"] = median(ratios)
        ends = [(run[slow], run[fast][-1].accuracy) for run in runs]
        to_end = [_since(moments, accuracy).seconds for moments, accuracy in ends]
        own = [_since(run[fast], run[fast][-1].accuracy).seconds for run in runs]
        figures[f"{slow}_over_{fast}_seconds_to_its_accuracy"] = median(np.divide(to_end, own).tolist())
    for side in runs[0]:
        for name in Moment._fields:
            figures[f"{side}_{name}"] = median(getattr(run[side][-1], name) for run in runs)
    return figures


def reached_by(one: Sequence[Moment], other: Sequence[Moment]) -> tuple[Moment, Moment]:
    """Return the moments at which two searches permanently reach the lower of their final accuracies."""
    accuracy = min(one[-1].accuracy, other[-1].accuracy)
    return _since(one, accuracy), _since(other, accuracy)


def _since(moments: Sequence[Moment], accuracy: float) -> Moment:
    """Return the moment from which on an accuracy is kept, or else the end."""
    below = [place for place, moment in enumerate(moments) if moment.accuracy < accuracy]
    return moments[min(below[-1] + 1, len(moments) - 1) if below else 0]


class Watched:
    """A scorer that records when each subnet is scored.

    Args:
        scorer: Scores groups of subnets.
        one_by_one: Score each subnet in a group of its own.
    """

    def __init__(self, scorer: Scorer, *, one_by_one: bool) -> None:
        self._scorer = scorer
        self._one_by_one = one_by_one
        self._start = process_time()
        self.seconds: list[float] = []

    def __call__(self, subnets: Sequence[Subnet]) -> list[SubnetScore]:
        """Return the score of each subnet."""
        groups = [[subnet] for subnet in subnets] if self._one_by_one else [subnets]
        scores: list[SubnetScore] = []
        for group in groups:
            scores += self._scorer(group)
            self.seconds += [process_time() - self._start] * len(group)
        return scores


def bests(candidates: Sequence[Candidate], budget_ms: float) -> list[int]:
    """Return the indices of the candidates that were the best so far within a budget."""
    places: list[int] = []
    for place, one in enumerate(candidates):
        if one.latency_ms <= budget_ms and (
            not places or one.score.worth > candidates[places[-1]].score.worth
        ):
            places.append(place)
    return places


def _searched(device: Device, side: Side, seed: int) -> list[Moment]:
    """Run a search; return the changes of the best subnet so far, and the end."""
    watched = Watched(device.scorer(device.searched), one_by_one=side.usual)
    candidates = search(
        device.space, device.table, watched, device.budget_ms, side.strategy, nearby=not side.usual,
        population=GENERATION, most=side.most, seed=seed,
    )  # fmt: skip
    places = bests(candidates, device.budget_ms)
    scores = device.scorer(device.held_out)([candidates[place].subnet for place in places])
    moments = {}
    for place, score in zip(places, scores, strict=True):
        # All subnets of a group get their scores together, so the last improvement in the group is the
        # choice.
        seconds = watched.seconds[place]
        moments[seconds] = Moment(seconds, bisect_right(watched.seconds, seconds), 100 * score.accuracy)
    last = list(moments.values())[-1].accuracy
    return [*moments.values(), Moment(watched.seconds[-1], len(candidates), last)]


def _device(ported: PortedBlocks, data: Examples, seed: int) -> Device:
    """Return a device with images for the search, drawn with a seed."""
    store, space = ported.store, SubnetSpace(ported.store)
    with TemporaryDirectory() as state:
        table = latency_table(ported.files, store, Path(state), threads=1)
    order = np.random.default_rng(seed).permutation(len(data))
    searched, held_out = data.subset(order[:SEARCHED]), data.subset(order[SEARCHED:])
    return Device(ported.files, store, space, table, searched, held_out)


def _shortened(side: Side, options: Namespace) -> Side:
    return side._replace(most=side.most // _QUICK_SHARE) if options.quick else side


def _factors(device: Device) -> dict[str, float]:
    """Return the savings of each way of scoring groups, for subnets near the budget."""
    moves = NearbyMoves(device.space, device.table, device.budget_ms, np.random.default_rng(0))
    figures: dict[str, float] = {}
    for size in GROUPS:
        subnets = moves.initial(size)
        reusing, apart = device.evaluation(), device.evaluation(feature_bytes=0)
        group = partial(_run_all, apart, [subnets])
        reuse = paired_ratio(partial(_run_all, reusing, [subnets]), group, _REPETITIONS, process_time)
        figures |= {
            f"saved_runs_of_{size}": reusing.saved / (reusing.saved + reusing.runs),
            f"saved_seconds_of_{size}": 1 - 1 / reuse.ratio,
        }
        if size == GENERATION:
            one_by_one = partial(_run_all, apart, [[subnet] for subnet in subnets])
            batching = paired_ratio(group, one_by_one, _REPETITIONS, process_time)
            figures |= {"batching_factor": batching.ratio, "reuse_factor": reuse.ratio}
    return figures


def _run_all(evaluation: GroupEvaluation, groups: Sequence[Sequence[Subnet]]) -> None:
    for group in groups:
        for _ in evaluation(group):
            pass


def _table(seed: int, sides: Mapping[str, Sequence[Moment]]) -> Table:
    title = f"seed {seed}: seconds and subnets to the accuracy of each other side, where both have it"
    table = Table(title=title, title_justify="left")
    for column in ("side", "accuracy", *(f"as {name}" for name in sides)):
        table.add_column(column, justify="left" if column == "side" else "right")
    for name, moments in sides.items():
        reached = (reached_by(moments, other)[0] for other in sides.values())
        cells = (f"{moment.seconds:.1f} s, {moment.subnets}" for moment in reached)
        table.add_row(name, f"{moments[-1].accuracy:.1f}", *cells)
    return table


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("elastic.search", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
