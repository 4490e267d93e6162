"""Human and machine effort for many settings (paper 8.4: Table 5).

`python -m benchmarks.porting.effort [--counts N ...] [--seeds N ...] [--quick] [--json FILE]`

The digits model is ported to 2, 10 and 100 goals between 0.9 and 0.1 of its multiply-adds: by one config with
all goals, and by one config and job per goal. Both kinds of config are written as people would write them,
without anything optional; their non-blank lines are counted. The goals of one config share the training steps
of two goals that are ported separately. Times are from the first call to the last package, on the same warm
server. At most five of the single-goal jobs are run, evenly spaced: they represent all others with their mean
time, and with their mean accuracy compared with that of the same goals from one config. Everything is
repeated with each seed, and figures are means over the seeds.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, add_seeds_option, run, seeds_of
from mistify.jobs.job import GoalState
from mistify_client.porting.follow import package_directory
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient

COUNTS: Final = (2, 10, 100)
LARGEST, SMALLEST = 0.9, 0.1

_MODEL: Final = '"model": "digits-resnet"'
_DATASET: Final = '"dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"}'

#: Training steps of the source, and of a goal that is ported separately.
_SOURCE_STEPS: Final = 200
_ALONE_STEPS: Final = 600
_LEAST_STEPS: Final = 12

#: Steps of a goal before its last cut.
_CUTTING: Final = 0.4

#: Number of single-goal jobs that are run.
_SAMPLE: Final = 5

TARGETS: Final[dict[str, Target]] = {
    f"mean_loss_at_{count}": {
        "what": f"{count} goals in one job instead of separate jobs: mean accuracy loss, points",
        "max": 0.5,
        "full_run_only": True,
    }
    for count in (10, 100)
}


@dataclass(frozen=True)
class Effort:
    """The effort of one way of porting: lines and files that people write, and seconds."""

    lines: int
    files: int
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Both ways of porting, with the mean accuracy in percent of the goals ported in both."""

    together: Effort
    alone: Effort
    together_accuracy: float
    alone_accuracy: float


def measure(options: Namespace) -> Figures:
    """Port in both ways, print the table and return the figures."""
    counts = (2,) if options.quick else options.counts
    with (
        TemporaryDirectory() as directory,
        embedded_server(Path(directory) / "store", []) as server,
        PortingClient(*server) as client,
    ):
        _ported(client, config_of([LARGEST], _LEAST_STEPS, 0), Path(directory) / "warm-up")
        comparisons = {
            count: _mean(
                [
                    _compare(client, count, seed, Path(directory) / f"{count}-{seed}")
                    for seed in seeds_of(options)
                ]
            )
            for count in counts
        }
    Console().print(_table(comparisons))
    figures: dict[str, float] = {}
    for count, comparison in comparisons.items():
        figures |= {
            f"lines_at_{count}": comparison.together.lines,
            f"files_at_{count}": comparison.together.files,
            f"lines_alone_at_{count}": comparison.alone.lines,
            f"files_alone_at_{count}": comparison.alone.files,
            f"time_percent_at_{count}": 100 * comparison.together.seconds / comparison.alone.seconds,
            f"mean_loss_at_{count}": comparison.alone_accuracy - comparison.together_accuracy,
        }
    return figures


def shares_of(count: int) -> list[float]:
    """Return a number of shares of the source's multiply-adds."""
    return [LARGEST * (SMALLEST / LARGEST) ** (place / (count - 1)) for place in range(count)]


def config_of(shares: Iterable[float], steps: int, seed: int) -> str:
    """Return a config as people would write it, with one line per goal."""
    cutting = round(_CUTTING * steps)
    settings = {
        "source_steps": _SOURCE_STEPS,
        "adapt_steps": cutting,
        "tune_steps": steps - cutting,
        "seed": seed,
    }
    algorithm = f'"algorithm": {{"name": "morphnet", "config": {json.dumps(settings)}}}'
    goals = [
        f'{{"id": "{_name(share)}", "adaptation_goal": {{"FLOP": "{share:.4f}x"}}, '
        f"{_MODEL}, {_DATASET}, {algorithm}}}"
        for share in shares
    ]
    return "[\n  " + ",\n  ".join(goals) + "\n]\n"


def _compare(client: PortingClient, count: int, seed: int, out: Path) -> Comparison:
    shares = shares_of(count)
    sample = shares[:: -(-count // _SAMPLE)]
    config = config_of(shares, max(_LEAST_STEPS, 2 * _ALONE_STEPS // count), seed)
    seconds, accuracies = _ported(client, config, out / "together")
    together = Effort(_lines(config), 1, seconds)
    configs = {share: config_of([share], _ALONE_STEPS, seed) for share in shares}
    alone = {share: _ported(client, configs[share], out / _name(share)) for share in sample}
    mean_seconds = mean(seconds for seconds, _ in alone.values())
    return Comparison(
        together,
        Effort(sum(map(_lines, configs.values())), count, count * mean_seconds),
        mean(accuracies[_name(share)] for share in sample),
        mean(alone[share][1][_name(share)] for share in sample),
    )


def _mean(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the mean of comparisons with equal numbers of goals."""

    def effort(efforts: Sequence[Effort]) -> Effort:
        return Effort(efforts[0].lines, efforts[0].files, mean(one.seconds for one in efforts))

    return Comparison(
        effort([one.together for one in comparisons]),
        effort([one.alone for one in comparisons]),
        mean(one.together_accuracy for one in comparisons),
        mean(one.alone_accuracy for one in comparisons),
    )


def _ported(client: PortingClient, config: str, out: Path) -> tuple[float, dict[str, float]]:
    """Return the seconds until all packages are made, and the accuracy of each goal in percent."""
    start = perf_counter()
    job = client.submit(config, out.as_posix())
    for event in client.watch(job.id):
        if event.event is GoalState.MET and event.goal_id:
            client.fetch(job.id, event.goal_id, package_directory(out, event.goal_id))
    seconds = perf_counter() - start
    goals = client.job(job.id).goals
    unmet = [f"{goal.id}: {goal.reason}" for goal in goals if goal.state is not GoalState.MET]
    if unmet:
        raise RuntimeError("; ".join(unmet))
    return seconds, {goal.id: 100 * (goal.accuracy or 0.0) for goal in goals}


def _lines(config: str) -> int:
    return sum(bool(line.strip()) for line in config.splitlines())


def _name(share: float) -> str:
    return f"flop-{share:.4f}"


def _table(comparisons: dict[int, Comparison]) -> Table:
    table = Table(title="The digits model, with one config and with separate configs", title_justify="left")
    for column in (
        "goals",
        "lines",
        "alone",
        "files",
        "alone",
        "seconds",
        "alone",
        "time",
        "accuracy",
        "alone",
    ):
        table.add_column(column, justify="right")
    for count, comparison in comparisons.items():
        table.add_row(
            str(count),
            f"{comparison.together.lines:,}",
            f"{comparison.alone.lines:,}",
            f"{comparison.together.files:,}",
            f"{comparison.alone.files:,}",
            f"{comparison.together.seconds:,.0f}",
            f"{comparison.alone.seconds:,.0f}",
            f"{comparison.together.seconds / comparison.alone.seconds:.1%}",
            f"{comparison.together_accuracy:.1f}",
            f"{comparison.alone_accuracy:.1f}",
        )
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--counts", type=int, nargs="+", metavar="N", default=COUNTS, help="numbers of goals")
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.effort", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
