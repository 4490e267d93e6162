"""Jobs with a time: whether they keep it, and what they reach beside settings that people choose for it.

`python -m benchmarks.porting.within_time --data DIR [--quick] [--seeds N ...] [--json FILE]`

ResNet-8 is ported to 0.75, 0.5, 0.35 and 0.25 of its multiply-adds in 2, 5 and 10 minutes by `mistify port
--time`, and by ten settings: algorithms, and the steps of source, cuts and tuning in relation to each other,
all with as many steps as fit into the same time; settings that the server refuses, because they do not fit,
are left out. A quick run has 2 minutes and one seed. Times are those of the whole command.

- `behind_at_N`: points by which the mean accuracy after N minutes is below that of the best of the ten;
- `longest`: the largest time relative to the given one, of the jobs with `auto`.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

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
from mistify.errors import ErrorCode

MINUTES: Final = (2, 5, 10)

SHARES: Final = (0.75, 0.5, 0.35, 0.25)

#: Algorithm, then steps of the source, of the cuts and of the tuning of a goal, in relation to each other.
BY_HAND: Final = (
    ("morphnet", 2400, 400, 600),
    ("morphnet", 600, 400, 600),
    ("morphnet", 0, 400, 600),
    ("morphnet", 600, 200, 800),
    ("morphnet", 600, 800, 200),
    ("uniform", 600, 400, 600),
    ("random", 600, 400, 600),
    ("chamnet", 600, 400, 600),
    ("nested", 600, 0, 0),
    ("adaptivenet", 600, 0, 0),
)

TARGETS: Final[dict[str, Target]] = {
    **{
        f"behind_at_{minutes}": {
            "what": f"points behind the best of ten settings after {minutes} minutes",
            "max": 0.5,
            "full_run_only": minutes > MINUTES[0],
        }
        for minutes in MINUTES
    },
    "longest": {"what": "time of a job relative to the given one, at most", "max": 1.1},
}


class _Job(NamedTuple):
    """The mean accuracy of a job in percent, and its seconds."""

    accuracy: float
    seconds: float


def measure(options: Namespace) -> Figures:
    """Run all jobs, print a table and return the figures."""
    data = data_with(FILES, options)
    figures: dict[str, float] = {}
    longest = []
    for minutes in MINUTES[:1] if options.quick else MINUTES:
        own: list[_Job] = []
        by_hand: dict[tuple[str, int, int, int], list[_Job]] = {each: [] for each in BY_HAND}
        for seed in seeds_of(options):
            own += _ported(data, minutes, {"name": "auto", "config": {"seed": seed}})
            for each in BY_HAND:
                by_hand[each] += _ported(data, minutes, _settings(each, seed))
        # A setting that fits only with some seeds has no mean that could be compared.
        by_hand = {each: jobs for each, jobs in by_hand.items() if len(jobs) == len(own)}
        means = {each: fmean(job.accuracy for job in jobs) for each, jobs in by_hand.items()}
        mean = fmean(job.accuracy for job in own)
        figures[f"behind_at_{minutes}"] = max(means.values()) - mean
        figures[f"accuracy_at_{minutes}"] = mean
        longest += [job.seconds / (60 * minutes) for job in own]
        Console().print(_table(minutes, own, by_hand))
    return {**figures, "longest": max(longest)}


def add_options(parser: ArgumentParser) -> None:
    """Add the options for data and seeds."""
    add_data_option(parser)
    add_seeds_option(parser)


def _settings(by_hand: tuple[str, int, int, int], seed: int) -> dict[str, object]:
    name, source, adapt, tune = by_hand
    steps: dict[str, object] = {"source_steps": source, "seed": seed}
    if adapt or tune:
        steps |= {"adapt_steps": adapt, "tune_steps": tune}
    return {"name": name, "config": steps}


def _ported(data: Path, minutes: int, algorithm: dict[str, object]) -> list[_Job]:
    """Run a job in a process, and return what it reached; nothing if it does not fit into the time."""
    goals = [
        {
            "id": f"at-{share}",
            "model": str(data / RESNET8),
            "dataset": {"train": str(data / TRAIN), "test": str(data / TEST)},
            "algorithm": algorithm,
            "adaptation_goal": {"FLOP": f"{share}x"},
        }
        for share in SHARES
    ]
    with TemporaryDirectory() as directory:
        config, out = Path(directory) / "goals.json", Path(directory) / "out"
        config.write_text(json.dumps(goals))
        command = [Path(sys.executable).parent / "mistify", "port", config, "--out", out]
        options = ["--data-root", data, "--time", f"{minutes}min"]
        started = perf_counter()
        words = [*map(str, command), *map(str, options)]
        status = subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode
        seconds = perf_counter() - started
        if status == ErrorCode.INVALID_CONFIG.exit_code:  # missed goals are no error here
            return []
        report = json.loads((out / "report.json").read_text())
    return [_Job(100 * fmean(goal["achieved"]["accuracy"] for goal in report["goals"]), seconds)]


def _table(minutes: int, own: list[_Job], by_hand: dict[tuple[str, int, int, int], list[_Job]]) -> Table:
    title = f"mean accuracy in percent after {minutes} minutes, and seconds"
    table = Table(title=title, title_justify="left")
    for column in ("algorithm", "source : cuts : tuning", "accuracy", "seconds"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    rows = [("auto", "by the forecast", own)]
    rows += [
        (name, f"{source} : {adapt} : {tune}", jobs) for (name, source, adapt, tune), jobs in by_hand.items()
    ]
    for name, steps, jobs in rows:
        accuracy, seconds = (fmean(values) for values in zip(*jobs, strict=True))
        table.add_row(name, steps, f"{accuracy:.1f}", f"{seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(run("porting.within_time", TARGETS, measure, sys.argv[1:], add_options))
