"""The rules that all benchmarks share.

A benchmark runs as `python -m benchmarks.GROUP.NAME [--quick] [--json FILE]`, plus options of its own. It
names its targets in its file, measures figures, prints its tables, and ends with one of these exit codes:

    0   every target is met
    1   a target is missed, or its figure was not measured
    2   the command line is wrong
    77  skipped, because data that it needs were not given, or an optional package is not installed; the
        message says which

A quick run may leave figures out. Their targets count as missed, unless they are declared as
`full_run_only`; the table then says so. Times are medians over several repetitions. Ratios come from both
sides measured in turn in the same run, so that a busy machine slows both.
"""

import json
import math
import os
import platform
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple, TypeAlias, TypedDict

from rich.console import Console
from rich.table import Table

EXIT_MET: Final = 0
EXIT_MISSED: Final = 1
EXIT_SKIPPED: Final = 77

#: What is repeated where chance decides; the quick runs have the first one alone.
SEEDS: Final = (0, 1, 2)

Figures: TypeAlias = Mapping[str, float]


class Target(TypedDict, total=False):
    """The bounds of a figure: at least `min`, at most `max`."""

    min: float
    max: float
    full_run_only: bool


class MissingDataError(Exception):
    """Error of a benchmark that lacks data or a package; the message says how to provide it."""


class Pair(NamedTuple):
    """Medians of two sides in seconds, and the median over the repetitions of `b` divided by `a`."""

    a: float
    b: float
    ratio: float


def run(
    name: str,
    targets: Mapping[str, Target],
    measure: Callable[[Namespace], Figures],
    argv: Sequence[str],
    add_options: Callable[[ArgumentParser], object] = lambda parser: None,
) -> int:
    """Measure, compare with the targets, print and save; `measure` gets the options and prints its tables.

    Returns:
        The exit code.
    """
    parser = ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures into this file")
    add_options(parser)
    options = parser.parse_args(argv)
    console = Console()
    record: dict[str, object] = {
        "benchmark": name,
        "command": shlex.join(["python", "-m", f"benchmarks.{name}", *argv]),
        "machine": machine(),
    }
    try:
        figures = measure(options)
    except MissingDataError as missing:
        console.print(f"{name}: skipped: {missing}", markup=False)
        met, exit_code = False, EXIT_SKIPPED
        record |= {"figures": {}, "targets": targets, "skipped": str(missing)}
    else:
        verdicts = {figure: _verdict(figures, figure, targets[figure], options.quick) for figure in targets}
        met = all(verdict is not False for verdict in verdicts.values())
        exit_code = EXIT_MET if met else EXIT_MISSED
        console.print(_table(name, figures, targets, verdicts))
        finite = {figure: value if math.isfinite(value) else None for figure, value in figures.items()}
        judged = {figure: {**targets[figure], "met": verdict} for figure, verdict in verdicts.items()}
        record |= {"figures": finite, "targets": judged}
    if options.json:
        options.json.write_text(json.dumps({**record, "met": met}, indent=2) + "\n")
    return exit_code


def add_data_option(parser: ArgumentParser) -> None:
    """Add `--data DIR`, the directory of the data; the variable MISTIFY_TEST_DATA is its default."""
    directory = os.environ.get("MISTIFY_TEST_DATA")
    parser.add_argument("--data", type=Path, metavar="DIR", default=Path(directory) if directory else None)


def data_with(files: Iterable[str], options: Namespace) -> Path:
    """Return the directory of the data, as an absolute path, as servers take it.

    Raises:
        MissingDataError: None is given, or it lacks one of the files.
    """
    directory: Path | None = options.data
    if directory is None or not all((directory / file).is_file() for file in files):
        raise MissingDataError(f"--data DIR names no directory with {', '.join(files)}")
    return directory.resolve()


def add_seeds_option(parser: ArgumentParser) -> None:
    """Add `--seeds N ...`: a long run can be made in parts, a seed each."""
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", default=SEEDS, help="repeat with these")


def seeds_of(options: Namespace) -> Sequence[int]:
    """Return the seeds that are asked for; of a quick run the first one."""
    seeds: Sequence[int] = options.seeds
    return seeds[:1] if options.quick else seeds


def seconds(
    function: Callable[[], object], repetitions: int, clock: Callable[[], float] = perf_counter
) -> list[float]:
    """Return the seconds of each of several calls."""
    return [_seconds(function, clock) for _ in range(repetitions)]


def median_seconds(
    function: Callable[[], object], repetitions: int, clock: Callable[[], float] = perf_counter
) -> float:
    """Return the median seconds of a call."""
    return median(seconds(function, repetitions, clock))


def paired_ratio(
    a: Callable[[], object],
    b: Callable[[], object],
    repetitions: int,
    clock: Callable[[], float] = perf_counter,
) -> Pair:
    """Return the medians of two sides that are called in turn."""
    pairs = [(_seconds(a, clock), _seconds(b, clock)) for _ in range(repetitions)]
    return Pair(
        median(of_a for of_a, _ in pairs),
        median(of_b for _, of_b in pairs),
        median(of_b / of_a for of_a, of_b in pairs),
    )


def machine() -> dict[str, str | int | float]:
    """Return where and when the figures are measured."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start


def _verdict(figures: Figures, figure: str, target: Target, quick: bool) -> bool | None:
    """Return whether a target is met; None if this run does not decide it."""
    if figure not in figures:
        return None if quick and target.get("full_run_only", False) else False
    # of numpy's numbers it would be one of its own, which JSON does not take
    return bool(target.get("min", -math.inf) <= figures[figure] <= target.get("max", math.inf))


def _table(
    name: str, figures: Figures, targets: Mapping[str, Target], verdicts: Mapping[str, bool | None]
) -> Table:
    table = Table(title=f"{name}: targets", title_justify="left")
    for column in ("figure", "measured", "target", "met"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    words = {True: "yes", False: "NO", None: "full run only"}
    for figure, verdict in verdicts.items():
        measured = f"{figures[figure]:.4g}" if figure in figures else "not measured"
        signs = {"min": ">=", "max": "<="}
        limits = [f"{signs[bound]} {limit:g}" for bound, limit in targets[figure].items() if bound in signs]
        table.add_row(figure, measured, ", ".join(limits), words[verdict])
    return table
