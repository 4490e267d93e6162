"""Collective adaptation against adaptation case by case (paper 4.3 and 8.1: Figure 6(a), Table 2).

`python -m benchmarks.collective --data DIR [--network NAME] [--quick] [--json FILE] [--picture FILE]`

n goals lie between twice and an eighth of a source's multiply-adds, evenly on a logarithmic scale. Collective
adaptation goes down the path of all of them, with the same steps for every goal that is smaller than the
source, and the least for the others. Per case, the same executor starts from the same tuned source
for each goal, widened first where the goal is larger, with the least steps of a ladder that bring it within
half a point of the accuracy that collective adaptation reached. The search starts from the steps of the goal
before. How many training steps that takes is the headline: for equal accuracy, as many times those of
collective adaptation.

What collective adaptation loses is measured against something else, since the search makes the above alike by
construction: against runs from the source with 1,000 steps for each goal, what a user would give a goal who
ports one case at a time.

Of more than 16 goals, 16 are ported per case, evenly spread, and stand for the others: what they took
counts as often as there are goals. Where even the most steps of the ladder are not enough, they count;
`unmatched` says of how many of the 16 that is true: the ratios are then lower bounds.

Both sides run in one warm worker, which has loaded the data and knows what the teacher says; neither side is
charged for tuning the source, for packages, or for the per-case runs that were not enough. Seconds are
without tracing on both sides: a path traces its networks a few times, runs per case each time anew.

ResNet-8 on CIFAR-10 and a network of depthwise convolutions, trained from nothing by the benchmark, are
ported to up to 32 goals, the built-in digits model to up to 128. DIR has `cifar10/train.npz` and
`cifar10/test.npz` (arrays x, uint8, and y), and `mlperf_tiny/resnet8_cifar10.h5`. `--network` ports one of
them: `resnet8`, `depthwise` or `digits`; `--quick` ports the digits model to 8 goals and needs no data.

Beside that, ResNet-8 is widened to four times its multiply-adds; `expansion_difference` is by how many points
of accuracy that changes it.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figures, Target, add_data_option, data_with, run
from benchmarks.porting import FILES, Porting, Reached, depthwise, resnet8
from mistify_server.tasks.sources import DataSource, ModelSource

LARGEST: Final = 2.0
SMALLEST: Final = 0.125

#: Points of accuracy by which a goal ported per case may fall short.
TOLERANCE: Final = 0.5

#: Steps of a fully trained run: as many as a goal has by default.
FULL_STEPS: Final = 1_000
_QUICK_FULL_STEPS: Final = 300

#: Numbers of goals; the last two for the digits alone.
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128)

#: The most goals that are ported per case.
_PORTED: Final = 16

#: Steps of the per-case runs.
LADDER: Final = tuple(round(10 * 1.3**power) for power in range(23))

#: The multiply-adds of the widened source, as a multiple.
_EXPANSION: Final = 4.0

#: Shares that the picture names.
_TICKS: Final = (2, 1, 0.5, 0.25, 0.125)

_RESNET8, _DEPTHWISE, _DIGITS = "resnet8", "depthwise", "digits"

TARGETS: Final[dict[str, Target]] = {
    "resnet8_step_ratio_at_16": {"min": 10, "full_run_only": True},
    "digits_step_ratio_at_128": {"min": 35, "full_run_only": True},
    "expansion_difference": {"max": 0.05, "full_run_only": True},
    "mean_loss": {"max": 0.5},
    "worst_loss": {"max": 1},
}


@dataclass(frozen=True)
class Network:
    """A source to be ported.

    Attributes:
        open: Prepares it, in a directory for its checkpoints.
        counts: Numbers of goals.
        steps: Steps that collective adaptation takes for the goals smaller than the source, however many.
        full_steps: Steps of a fully trained run per case.
    """

    open: Callable[[Path], Porting]
    counts: tuple[int, ...]
    steps: int
    full_steps: int = FULL_STEPS


@dataclass(frozen=True)
class Comparison:
    """Both sides for one number of goals, by share of the source; per case only for evenly spread shares.

    Attributes:
        collective: The goals of a path.
        per_case: Goals ported case by case, with the least steps that are enough.
        full: Goals ported case by case, fully trained.
    """

    collective: Mapping[float, Reached]
    per_case: Mapping[float, Reached]
    full: Mapping[float, Reached]

    @property
    def per_case_seconds(self) -> float:
        """Return the seconds for all goals per case, estimated from those that were ported per case."""
        return mean(map(_untraced, self.per_case.values())) * len(self.collective)

    @property
    def per_case_steps(self) -> float:
        """Return the steps for all goals per case, estimated in the same way."""
        return mean(reached.steps for reached in self.per_case.values()) * len(self.collective)

    @property
    def time_ratio(self) -> float:
        """Return seconds per case over seconds of collective adaptation."""
        return self.per_case_seconds / _seconds(self.collective)

    @property
    def step_ratio(self) -> float:
        """Return steps per case over steps of collective adaptation."""
        return self.per_case_steps / _steps(self.collective)

    @property
    def full_step_ratio(self) -> float:
        """Return steps of fully trained runs over steps of collective adaptation."""
        steps = mean(reached.steps for reached in self.full.values()) * len(self.collective)
        return steps / _steps(self.collective)

    @property
    def losses(self) -> list[float]:
        """Return the points of accuracy that goals of the path have less than fully trained runs."""
        return [goal.accuracy - self.collective[share].accuracy for share, goal in self.full.items()]

    @property
    def unmatched(self) -> int:
        """Return the number of goals for which even the most steps of the ladder were not enough."""
        return sum(
            goal.accuracy < self.collective[share].accuracy - TOLERANCE
            for share, goal in self.per_case.items()
        )


def measure(options: Namespace) -> Figures:
    """Return all figures; print the tables and draw the picture."""
    networks = _quick_networks() if options.quick else _networks(partial(data_with, FILES, options))
    comparisons = {}
    figures = {}
    for name in [options.network] if options.network in networks else networks:
        with TemporaryDirectory() as directory:
            porting = networks[name].open(Path(directory))
            if name == _RESNET8:
                figures["expansion_difference"] = abs(porting.widened_accuracy(_EXPANSION) - porting.accuracy)
            comparisons[name] = _compare(networks[name], porting)
        Console().print(*_tables(name, comparisons[name]), sep="\n")
    if options.picture:
        _draw(comparisons, options.picture)
    return figures | figures_of(comparisons)


def _networks(data: Callable[[], Path]) -> dict[str, Network]:
    """Return the networks of a full run. The digits are built in and need no data."""
    return {
        _RESNET8: Network(lambda directory: resnet8(data(), directory, {}), _COUNTS[:6], 1600),
        _DEPTHWISE: Network(lambda directory: depthwise(data(), directory), _COUNTS[:6], 1600),
        _DIGITS: Network(_digits, _COUNTS, 800),
    }


def _quick_networks() -> dict[str, Network]:
    return {_DIGITS: Network(_digits, (8,), 480, _QUICK_FULL_STEPS)}


def _digits(directory: Path) -> Porting:
    data = DataSource(train="builtin:digits-train", test="builtin:digits-test")
    return Porting(ModelSource(builtin="digits-resnet"), data, directory, {})


def shares_of(count: int) -> list[float]:
    """Return shares of the source's multiply-adds; the shares for n goals are among those for 2n."""
    return [LARGEST * (SMALLEST / LARGEST) ** (place / count) for place in range(1, count + 1)]


def steps_of(shares: Sequence[float], steps: int) -> dict[float, int]:
    """Return the steps for each share: evenly divided among the goals for which something is cut."""
    smaller = [share for share in shares if share < 1]
    return {share: max(LADDER[0], steps // len(smaller)) if share < 1 else LADDER[0] for share in shares}


def _compare(network: Network, porting: Porting) -> dict[int, Comparison]:
    """Return both sides for every number of goals, and report progress; each per-case run serves them all."""
    runs: dict[tuple[float, int], Reached] = {}

    def case(share: float, steps: int) -> Reached:
        if (share, steps) not in runs:
            runs[share, steps] = porting.case(share, steps)
        return runs[share, steps]

    def accuracy(share: float, place: int) -> float:
        return case(share, LADDER[place]).accuracy

    comparisons = {}
    for count in network.counts:
        collective = porting.collective(steps_of(shares_of(count), network.steps))
        per_case, full = {}, {}
        place = 0
        # The last of every so many: a goal that is shared with the counts before.
        every = max(1, count // _PORTED)
        for share, reached in list(collective.items())[every - 1 :: every]:
            place = least_place(partial(accuracy, share), reached.accuracy - TOLERANCE, place)
            per_case[share] = case(share, LADDER[place])
            full[share] = case(share, network.full_steps)
            print(
                f"{count} goals, {share:.3f}: {reached.accuracy:.1f} % in {reached.steps} steps, "
                f"per case {per_case[share].accuracy:.1f} % in {per_case[share].steps}, "
                f"{full[share].accuracy:.1f} % in {full[share].steps}",
                file=sys.stderr,
                flush=True,
            )
        comparisons[count] = Comparison(collective, per_case, full)
    return comparisons


def least_place(accuracy_at: Callable[[int], float], target: float, start: int) -> int:
    """Return the first place of the ladder that reaches the accuracy, searched from `start`; or the last."""
    place = start
    if accuracy_at(place) >= target:
        while place > 0 and accuracy_at(place - 1) >= target:
            place -= 1
        return place
    while place + 1 < len(LADDER) and accuracy_at(place) < target:
        place += 1
    return place


def figures_of(comparisons: Mapping[str, Mapping[int, Comparison]]) -> dict[str, float]:
    """Return the figures of all networks and numbers of goals."""
    figures = {}
    for name, row in comparisons.items():
        for count, comparison in row.items():
            figures[f"{name}_time_ratio_at_{count}"] = comparison.time_ratio
            figures[f"{name}_step_ratio_at_{count}"] = comparison.step_ratio
            figures[f"{name}_mean_loss_at_{count}"] = mean(comparison.losses)
            figures[f"{name}_worst_loss_at_{count}"] = max(comparison.losses)
            figures[f"{name}_full_step_ratio_at_{count}"] = comparison.full_step_ratio
            figures[f"{name}_unmatched_at_{count}"] = comparison.unmatched
    largest = [row[max(row)] for row in comparisons.values()]
    figures["mean_loss"] = max(mean(comparison.losses) for comparison in largest)
    figures["worst_loss"] = max(max(comparison.losses) for comparison in largest)
    return figures


def _seconds(rows: Mapping[float, Reached]) -> float:
    return sum(map(_untraced, rows.values()))


def _untraced(reached: Reached) -> float:
    """Return the seconds of a goal without tracing."""
    return reached.seconds - reached.spent.get("tracing", 0.0)


def _steps(rows: Mapping[float, Reached]) -> int:
    return sum(reached.steps for reached in rows.values())


def _tables(name: str, comparisons: Mapping[int, Comparison]) -> tuple[Table, Table]:
    ratios = Table(title=f"{name}: by the number of goals", title_justify="left")
    for column in (
        "goals",
        "steps",
        "per case",
        "ratio",
        "seconds",
        "per case",
        "ratio",
        "mean loss",
        "worst",
    ):
        ratios.add_column(column, justify="right")
    for count, comparison in comparisons.items():
        collective = comparison.collective
        ratios.add_row(
            str(count),
            f"{_steps(collective):,}",
            f"{comparison.per_case_steps:,.0f}",
            f"{comparison.step_ratio:.1f}",
            f"{_seconds(collective):.1f}",
            f"{comparison.per_case_seconds:.1f}",
            f"{comparison.time_ratio:.1f}",
            f"{mean(comparison.losses):.2f}",
            f"{max(comparison.losses):.2f}",
        )
    count, comparison = max(comparisons.items())
    goals = Table(title=f"{name}: goals ported per case, of {count}", title_justify="left")
    columns = ("share", "accuracy", "per case", "fully", "steps", "per case", "seconds", "per case")
    for column in columns:
        goals.add_column(column, justify="right")
    for share, case in comparison.per_case.items():
        ours = comparison.collective[share]
        goals.add_row(
            f"{share:.3f}",
            f"{ours.accuracy:.1f}",
            f"{case.accuracy:.1f}",
            f"{comparison.full[share].accuracy:.1f}",
            f"{ours.steps:,}",
            f"{case.steps:,}",
            f"{_untraced(ours):.1f}",
            f"{_untraced(case):.1f}",
        )
    return ratios, goals


def _draw(networks: Mapping[str, Mapping[int, Comparison]], file: Path) -> None:
    """Draw, for the most goals of each network, the accuracies and how the steps add up."""
    figure = Figure(figsize=(9, 3.5 * len(networks)), layout="constrained")
    for row, (name, comparisons) in zip(
        figure.subplots(len(networks), 2, squeeze=False), networks.items(), strict=True
    ):
        count, comparison = max(comparisons.items())
        sides = {
            "collective": comparison.collective,
            "per case, as accurate": comparison.per_case,
            "per case, fully trained": comparison.full,
        }
        for label, goals in sides.items():
            row[0].plot(
                list(goals), [reached.accuracy for reached in goals.values()], "o-", ms=4, label=label
            )
            each = count / len(goals)
            steps = accumulate(each * reached.steps for reached in goals.values())
            row[1].plot(list(goals), list(steps), label=label)
        row[0].set(title=f"{name}, {count} goals", ylabel="accuracy, %")
        row[1].set(ylabel="training steps so far", ylim=(0, None))
        for axes in row:
            axes.set(xlabel="multiply-adds, of the source's", xlim=(LARGEST, SMALLEST), xscale="log")
            axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
            axes.minorticks_off()
            axes.grid(alpha=0.3)
            axes.legend()
    figure.savefig(file, dpi=120)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=(_RESNET8, _DEPTHWISE, _DIGITS), help="port only this one")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw both sides into this PNG file")


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("collective", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
