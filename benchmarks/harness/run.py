"""The rules shared by all benchmarks.

A benchmark runs as `python -m benchmarks.GROUP.NAME [--quick] [--json FILE]`, plus options of its own. Its
module defines the targets, measures figures, prints tables, and ends with one of these exit codes:

    0   every target is met
    1   a target is missed, or its figure was not measured
    2   the command line is wrong
    77  skipped, because required data were not given, or an optional package is not installed; the message
        says which

A quick run may leave figures out. Their targets count as missed unless they are declared as `full_run_only`;
the table then says so. A full run leaves a record (`harness/records.py`). Times are medians over several
repetitions. For ratios, both sides are measured alternately in the same run, so that a busy machine slows
both.
"""

import math
import os
import shlex
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

from rich.console import Console
from rich.table import Table

from benchmarks.harness import records
from benchmarks.harness.records import Judged, Record

EXIT_MET: Final = 0
EXIT_MISSED: Final = 1
EXIT_SKIPPED: Final = 77

#: Default seeds of benchmarks with randomness; quick runs only use the first.
SEEDS: Final = (0, 1, 2)

Figures: TypeAlias = Mapping[str, float]


class Target(TypedDict, total=False):
    """The bounds of a figure: at least `min`, at most `max`; `what` is the figure in words, with its unit."""

    what: str
    min: float
    max: float
    full_run_only: bool


class MissingDataError(Exception):
    """A benchmark lacks data or a package; the message says how to provide it."""


class Pair(NamedTuple):
    """Median seconds of two sides `a` and `b`, and the median over the repetitions of `b` divided by `a`."""

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
    """Run a benchmark, compare it with its targets, print and save; `measure` prints the benchmark's tables.

    Returns:
        The exit code.
    """
    parser = ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="skip or shorten slow parts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record to this file")
    add_options(parser)
    options = parser.parse_args(argv)
    machine = records.machine()
    skipped, figures = None, dict[str, float]()
    try:
        with _unwound_by_sigterm():
            figures = dict(measure(options))
    except MissingDataError as missing:
        skipped = str(missing)
    judged = {figure: _judged(figures, figure, targets[figure], options.quick) for figure in targets}
    record = Record(
        benchmark=name,
        command=_command(name, argv, options),
        commit=records.commit(),
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        machine=machine,
        quick=options.quick,
        figures={figure: value if math.isfinite(value) else None for figure, value in figures.items()},
        targets=judged,
        met=skipped is None and all(target.met is not False for target in judged.values()),
        **_settings(options, skipped),
    )
    if skipped is None:
        Console().print(_table(name, figures, judged))
    else:
        Console().print(f"{name}: skipped: {skipped}", markup=False)
    if options.json:
        record.write(options.json)
    elif skipped is None and not options.quick:
        record.write(records.RECORDS / record.file_name)
    return EXIT_SKIPPED if skipped is not None else EXIT_MET if record.met else EXIT_MISSED


@contextmanager
def _unwound_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the block as Ctrl-C does, so that no process and no namespace of it remains."""
    previous = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def run_with_one_thread(
    name: str,
    targets: Mapping[str, Target],
    measure: Callable[[Namespace], Figures],
    argv: Sequence[str],
    add_options: Callable[[ArgumentParser], object] = lambda parser: None,
) -> int:
    """Run a benchmark as `run` does, with one thread of TensorFlow in this process.

    Call it before TensorFlow computes anything.
    """
    import tensorflow as tf  # noqa: PLC0415 - other benchmarks start faster without it

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return run(name, targets, measure, argv, add_options)


def add_data_option(parser: ArgumentParser) -> None:
    """Add `--data DIR`, the directory of the data; its default is the variable MISTIFY_TEST_DATA."""
    directory = os.environ.get("MISTIFY_TEST_DATA")
    parser.add_argument("--data", type=Path, metavar="DIR", default=Path(directory) if directory else None)


def data_with(files: Iterable[str], options: Namespace) -> Path:
    """Return the absolute path of the data directory, as servers need it.

    Raises:
        MissingDataError: No directory is given, or it lacks one of the files.
    """
    directory: Path | None = options.data
    if directory is None or not all((directory / file).is_file() for file in files):
        raise MissingDataError(f"--data DIR names no directory with {', '.join(files)}")
    return directory.resolve()


def add_seeds_option(parser: ArgumentParser, default: Sequence[int] = SEEDS) -> None:
    """Add `--seeds N ...`, so that a long run can be divided by seed."""
    parser.add_argument(
        "--seeds", type=int, nargs="+", metavar="N", default=default, help="repeat with these seeds"
    )


def seeds_of(options: Namespace) -> Sequence[int]:
    """Return the requested seeds, or only the first one for a quick run."""
    seeds: Sequence[int] = options.seeds
    return seeds[:1] if options.quick else seeds


def seconds(
    function: Callable[[], object], repetitions: int, clock: Callable[[], float] = perf_counter
) -> list[float]:
    """Return the seconds of several calls."""
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
    """Return the medians of two sides that are called alternately."""
    pairs = [(_seconds(a, clock), _seconds(b, clock)) for _ in range(repetitions)]
    return Pair(
        median(of_a for of_a, _ in pairs),
        median(of_b for _, of_b in pairs),
        median(of_b / of_a for of_a, of_b in pairs),
    )


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start


def _command(name: str, argv: Sequence[str], options: Namespace) -> str:
    """Return the command, with absolute paths replaced by the names of their options."""
    paths = {str(value): option.upper() for option, value in vars(options).items() if isinstance(value, Path)}
    words = (paths.get(word, word) if word.startswith("/") else word for word in argv)
    return shlex.join(["python", "-m", f"benchmarks.{name}", *words])


def _settings(options: Namespace, skipped: str | None) -> dict[str, Any]:
    """Return the optional fields of a record."""
    settings: dict[str, Any] = {} if skipped is None else {"skipped": skipped}
    if getattr(options, "network", None):
        settings["network"] = options.network
    if hasattr(options, "seeds"):
        settings["seeds"] = tuple(seeds_of(options))
    if getattr(options, "picture", None):
        settings["picture"] = options.picture.name
    return settings


def _judged(figures: Figures, figure: str, target: Target, quick: bool) -> Judged:
    """Return a target and whether it is met; None if this run does not determine it."""
    if figure in figures:
        # NumPy booleans cannot be serialized to JSON
        low, high = target.get("min", -math.inf), target.get("max", math.inf)
        met: bool | None = bool(low <= figures[figure] <= high)
    else:
        met = None if quick and target.get("full_run_only", False) else False
    return Judged(**target, met=met)


def _table(name: str, figures: Figures, targets: Mapping[str, Judged]) -> Table:
    table = Table(title=f"{name}: targets", title_justify="left")
    for column in ("figure", "measured", "target", "met"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    words = {True: "yes", False: "NO", None: "full run only"}
    for figure, target in targets.items():
        measured = f"{figures[figure]:.4g}" if figure in figures else "not measured"
        table.add_row(target.what or figure, measured, target.asked, words[target.met])
    return table
