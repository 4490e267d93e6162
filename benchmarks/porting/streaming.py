"""Time to add a goal to a job with similar goals, compared with a new job (paper 4.3, streaming).

`python -m benchmarks.porting.streaming --data DIR [--seeds N ...] [--quick] [--json FILE]`

MLPerf Tiny's ResNet-8, tuned on CIFAR-10 beforehand, is ported to four shares of its multiply-adds. Then
another goal is added to the job (streamed). It is also ported by new jobs (per case) with increasing numbers
of training steps, until the result is at most half a point less accurate than the streamed one. Only the time
of the last job counts, from the call to the package; both sides use the same server and warm worker.

Neither side includes tuning the source: both start from the tuned one. A new job still reads, measures and
prepares it, so the time of adaptation and packaging alone is also given. If even the largest number of steps
is insufficient, the ratios are those of the longest job, and are lower bounds: `unmatched_seeds` counts these
cases.

DIR has `cifar10/train.npz`, `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`.
`--quick` trains with few steps and one seed, with two goals before the added one: it shows that everything
works, but little of its time is spent on training.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

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
from benchmarks.harness.worker import FILES, TEST, TRAIN, resnet8
from executors.contract.params import Params
from mistify.jobs.job import GoalState, Job
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient

DATASET: Final = {"train": TRAIN, "test": TEST}
TARGETS: Final[dict[str, Target]] = {
    "times_faster": {
        "what": "goal added to a job: speedup over a separate job at equal accuracy",
        "min": 3,
        "full_run_only": True,
    }
}

#: Goals, as shares of the source's multiply-adds.
SHARES: Final = (0.75, 0.5, 0.35, 0.25)
QUICK_SHARES: Final = (0.5, 0.25)
ADDED: Final = 0.3

#: A new job is as accurate if its accuracy is at most this much lower than the streamed goal's.
TOLERANCE: Final = 0.005

#: Steps of the new jobs in order, as multiples of those of one goal of the job.
LADDER: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
QUICK_LADDER: Final = (0.5, 1.0)

#: Settings for one goal of a quick run, which only has to show that everything works.
QUICK_PARAMS: Final = Params(source_steps=60, adapt_steps=40, tune_steps=40)


@dataclass(frozen=True)
class Ported:
    """A goal with its package: seconds since the call, and seconds of its own adaptation and packaging."""

    accuracy: float
    steps: int
    seconds: float
    own_seconds: float


@dataclass(frozen=True)
class Comparison:
    """The streamed goal of one seed, and the new jobs by their multiple of steps; the last one counts."""

    parent: str
    streamed: Ported
    fresh: dict[float, Ported]

    @property
    def counted(self) -> Ported:
        """Return the new job that is as accurate, or else the longest."""
        return list(self.fresh.values())[-1]

    @property
    def matched(self) -> bool:
        """Return whether a new job is as accurate."""
        return self.counted.accuracy >= self.streamed.accuracy - TOLERANCE


def measure(options: Namespace) -> Figures:
    """Return all figures; print the table."""
    data = data_with(FILES, options)
    seeds = seeds_of(options)
    with TemporaryDirectory() as name:
        directory = Path(name).resolve()
        with (
            embedded_server(directory / "store", [data.resolve(), directory]) as server,
            PortingClient(*server) as client,
        ):
            comparisons = [
                _compare(client, _tuned(data, directory, seed, options.quick), seed, options.quick)
                for seed in seeds
            ]
    Console().print(_table(seeds, comparisons))
    ratio = median(comparison.counted.seconds / comparison.streamed.seconds for comparison in comparisons)
    figures = {
        "times_faster_of_adaptation_alone": median(
            comparison.counted.own_seconds / comparison.streamed.own_seconds for comparison in comparisons
        ),
        "streamed_s": median(comparison.streamed.seconds for comparison in comparisons),
        "per_case_s": median(comparison.counted.seconds for comparison in comparisons),
        "streamed_accuracy": median(comparison.streamed.accuracy for comparison in comparisons),
        "per_case_accuracy": median(comparison.counted.accuracy for comparison in comparisons),
        "unmatched_seeds": sum(not comparison.matched for comparison in comparisons),
    }
    return {("quick_times_faster" if options.quick else "times_faster"): ratio, **figures}


def _tuned(data: Path, directory: Path, seed: int, quick: bool) -> str:
    """Tune the source and return its path."""
    steps = (QUICK_PARAMS if quick else Params()).source_steps
    porting = resnet8(data, directory / f"tuned-{seed}", {"source_steps": steps, "seed": seed})
    return str(porting.tuned.path)


def _compare(client: PortingClient, model: str, seed: int, quick: bool) -> Comparison:
    params = QUICK_PARAMS if quick else Params()
    shares, ladder = (QUICK_SHARES, QUICK_LADDER) if quick else (SHARES, LADDER)
    job = client.submit(_config(model, shares, params, 1.0, seed), f"job-{seed}")
    _wait(client, job, map(_name, shares))
    start = perf_counter()
    job, streamed = _ported(
        client, client.add_goals(job.id, _config(model, [ADDED], params, 1.0, seed)), start
    )
    parent = next(goal.parent for goal in job.goals if goal.id == _name(ADDED)) or "source"
    comparison = Comparison(parent, streamed, {})
    for multiple in ladder:
        start = perf_counter()
        fresh = client.submit(_config(model, [ADDED], params, multiple, seed), f"fresh-{seed}-{multiple}")
        comparison.fresh[multiple] = _ported(client, fresh, start)[1]
        if comparison.matched:
            break
    return comparison


def _config(model: str, shares: Sequence[float], params: Params, multiple: float, seed: int) -> str:
    """Return a config of goals at these shares of a tuned source, with a multiple of the steps per goal."""
    adapt_steps, tune_steps = round(multiple * params.adapt_steps), round(multiple * params.tune_steps)
    settings = {
        "source_steps": 0,
        "adapt_steps": adapt_steps,
        "tune_steps": tune_steps,
        "max_steps": max(params.max_steps, 2 * (adapt_steps + tune_steps)),
        "seed": seed,
    }
    common = {"model": model, "dataset": DATASET, "algorithm": {"name": "morphnet", "config": settings}}
    return json.dumps(
        [{"id": _name(share), "adaptation_goal": {"FLOP": f"{share}x"}, **common} for share in shares]
    )


def _ported(client: PortingClient, job: Job, start: float) -> tuple[Job, Ported]:
    """Wait for the package of the goal added at `start`; return the job and the goal."""
    own_seconds = _wait(client, job, [_name(ADDED)])
    seconds = perf_counter() - start
    job = client.job(job.id)
    goal = next(goal for goal in job.goals if goal.id == _name(ADDED))
    if goal.state is not GoalState.MET or goal.accuracy is None:
        raise RuntimeError(f"{goal.id} is {goal.state.value}: {goal.reason}")
    return job, Ported(goal.accuracy, goal.steps, seconds, own_seconds)


def _wait(client: PortingClient, job: Job, names: Iterable[str]) -> float:
    """Wait until goals have ended; return the seconds from the start of the first to the end of the last."""
    left = set(names)
    times = []
    for event in client.watch(job.id):
        if event.goal_id in left and isinstance(event.event, GoalState):
            if event.event is not GoalState.WAITING:
                times.append(event.unix_ms)
            if event.event.ended:
                left.remove(event.goal_id)
        if not left:
            break
    return (times[-1] - times[0]) / 1000


def _name(share: float) -> str:
    return f"flop-{100 * share:g}"


def _table(seeds: Sequence[int], comparisons: list[Comparison]) -> Table:
    title = f"{ADDED}x multiply-adds; seconds since the call, and of its own adaptation and packaging"
    table = Table(title=title, title_justify="left")
    for column in ("seed", "side", "steps", "accuracy", "seconds", "own", "counts"):
        table.add_column(column, justify="left" if column in ("side", "counts") else "right")
    for seed, comparison in zip(seeds, comparisons, strict=True):
        for side, ported, counts in _rows(comparison):
            figures = (f"{100 * ported.accuracy:.1f}", f"{ported.seconds:.1f}", f"{ported.own_seconds:.1f}")
            table.add_row(str(seed), side, f"{ported.steps:,}", *figures, counts)
    return table


def _rows(comparison: Comparison) -> Iterator[tuple[str, Ported, str]]:
    yield f"streamed from {comparison.parent}", comparison.streamed, "yes"
    for multiple, ported in comparison.fresh.items():
        verdict = "yes" if comparison.matched else "too low"
        counts = verdict if ported is comparison.counted else ""
        yield f"per case, steps x {multiple:g}", ported, counts


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


if __name__ == "__main__":
    sys.exit(run("porting.streaming", TARGETS, measure, sys.argv[1:], add_options))
