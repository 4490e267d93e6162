"""The share of forecasts of `mistify plan` that hold, and the width of their intervals.

`python -m benchmarks.porting.forecasts [--data DIR] [--seeds N ...] [--fitted] [--quick] [--json FILE]`

Small networks of several kinds, random or trained for some time, are ported on scikit-learn's data. Each is
ported in two jobs on a store of its own, so that the first forecast knows only benchmarks, and the second
also the edges of the first job. Before each job, `plan` gives a 95 % interval for the accuracy of every
package. Seeds determine the weights, the split of the data and the training. The targets apply to networks
that were not used to choose constants of the forecast; `--fitted` also ports those that were.

Wide intervals hold easily, so 95 % intervals that hold in more than 98 % of cases miss their target. Their
width is a figure as well, and so is their score (Gneiting and Raftery, 2007): the width plus 40 times the
distance by which the result lies outside. The interval from 0 to 1 scores 1. With `--data`, MLPerf Tiny's
ResNet-8 is also ported on CIFAR-10. `--quick` uses one network and one seed.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import (
    Figures,
    MissingDataError,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)
from benchmarks.harness.worker import FILES, RESNET8, TEST, TRAIN
from benchmarks.porting.feasible_goals import feasible
from benchmarks.porting.forecast_networks import CASES, Case, write_case
from mistify.jobs.job import Job
from mistify.jobs.plan import Plan
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient

#: Names of the networks used to choose the constants of the forecast.
FITTED: Final = frozenset(case.name for case in CASES if case.fitted)

TARGETS: Final[dict[str, Target]] = {
    # Above the maximum, the intervals are too wide: they are meant to hold 19 times of 20.
    "held": {"what": "share of the 95 % intervals that hold", "min": 0.9, "max": 0.98},
    "held_fresh": {"what": "share that holds with a new store", "min": 0.9},
    "held_experienced": {"what": "share that holds with a store that has ported the network", "min": 0.9},
    "median_width": {"what": "median width of the intervals", "max": 0.2},
    "score": {"what": "mean score of the intervals (the interval 0 to 1 scores 1)", "max": 0.4},
}

#: The score's penalty per unit of distance outside a 95 % interval.
_PENALTY: Final = 2 / 0.05

#: Goals of a network's first and second job: keys and limits.
_GOALS: Final = (
    {"half": {"FLOP": "0.5x"}, "size": {"size": "0.3x"}},
    {"tenth": {"FLOP": "0.1x"}, "memory": {"memory": "0.5x"}},
)
_RESNET_GOALS: Final = (
    {"half": {"FLOP": "0.5x"}, "latency": {"latency": "0.4x"}},
    {"quarter": {"FLOP": "0.25x"}, "faster": {"latency": "0.25x"}},
)
_RESNET_SETTINGS: Final = {"source_steps": 200, "adapt_steps": 100, "tune_steps": 150}


class Outcome(NamedTuple):
    """A forecast of a package, and its outcome.

    Attributes:
        case: Name of the network.
        fresh: Whether the store was empty.
        low: Lower end of the interval.
        high: Upper end of the interval.
        reached: The package's score on the test data.
        slowdown: Actual seconds of the edge relative to the forecast.
    """

    case: str
    fresh: bool
    low: float
    high: float
    reached: float
    slowdown: float

    @property
    def held(self) -> bool:
        """Return whether the score lies in the interval."""
        return self.low <= self.reached <= self.high

    @property
    def score(self) -> float:
        """Return the interval's score; lower is better."""
        missed = max(self.low - self.reached, self.reached - self.high, 0.0)
        return self.high - self.low + _PENALTY * missed


def measure(options: Namespace) -> Figures:
    """Port all networks, print the tables and return the figures of those not used for fitting."""
    seeds = seeds_of(options)
    cases = [case for case in CASES if options.fitted or not case.fitted][: 1 if options.quick else None]
    outcomes = []
    for seed in seeds:
        for port in _ports(options, cases):
            for outcome in port(seed):
                print(seed, outcome, file=sys.stderr, flush=True)
                outcomes.append(outcome)
    Console().print(_table(outcomes))
    return figures_of([outcome for outcome in outcomes if outcome.case not in FITTED])


def figures_of(outcomes: Sequence[Outcome]) -> Figures:
    """Return the share of intervals that held, their median width, and their mean score."""
    by_store = {name: [each for each in outcomes if each.fresh is fresh] for name, fresh in _STORES.items()}
    return {
        "held": mean(outcome.held for outcome in outcomes),
        **{f"held_{name}": mean(each.held for each in own) for name, own in by_store.items()},
        "median_width": median(outcome.high - outcome.low for outcome in outcomes),
        "score": mean(outcome.score for outcome in outcomes),
        "median_slowdown": median(outcome.slowdown for outcome in outcomes),
    }


_STORES: Final = {"fresh": True, "experienced": False}


def outcomes_of(
    name: str,
    common: Mapping[str, object],
    goals: Sequence[Mapping[str, object]],
    store: Path,
    roots: Sequence[Path],
) -> Iterator[Outcome]:
    """Port a network in several jobs on a store, and yield each package with its forecast."""
    with embedded_server(store, roots) as server, PortingClient(*server) as client:
        for number, limits in enumerate(goals):
            configs = [
                {"id": goal, "adaptation_goal": limit, "quantization": "none", **common}
                for goal, limit in limits.items()
            ]
            text = json.dumps(list(feasible(configs, client)))
            plan = client.plan(text)
            job = client.submit(text, f"{name}-{number}")
            for _ in client.watch(job.id):
                pass
            yield from _compared(name, number == 0, plan, client.job(job.id))


def _compared(name: str, fresh: bool, plan: Plan, job: Job) -> Iterator[Outcome]:
    goals = {goal.id: goal for goal in job.goals}
    for edge in plan.batches[0].edges:
        goal, accuracy = goals[edge.goals[0]], edge.accuracy
        if goal.accuracy is None or accuracy is None:
            raise TypeError(f"{name}: {goal.id} has no accuracy: {goal.reason}")
        yield Outcome(name, fresh, accuracy.low, accuracy.high, goal.accuracy, goal.seconds / edge.seconds)


def _ports(options: Namespace, cases: Sequence[Case]) -> Iterator[Callable[[int], Iterator[Outcome]]]:
    yield from (partial(_ported, case) for case in cases)
    if not options.quick:
        with suppress(MissingDataError):
            yield partial(_resnet8, data_with(FILES, options))


def _ported(case: Case, seed: int) -> Iterator[Outcome]:
    with TemporaryDirectory() as directory:
        root = Path(directory) / "data"
        common = write_case(case, seed, root)
        yield from outcomes_of(case.name, common, _GOALS, Path(directory) / "store", [root])


def _resnet8(data: Path, seed: int) -> Iterator[Outcome]:
    settings = {**_RESNET_SETTINGS, "seed": seed}
    common = {
        "model": RESNET8,
        "dataset": {"train": TRAIN, "test": TEST},
        "algorithm": {"name": "auto", "config": settings},
    }
    with TemporaryDirectory() as directory:
        yield from outcomes_of("resnet8", common, _RESNET_GOALS, Path(directory) / "store", [data])


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="Forecasts", title_justify="left")
    for column in ("network", "store", "intervals held", "mean width", "mean score", "reached", "slowdown"):
        table.add_column(column, justify="left" if column in ("network", "store") else "right")
    for name in dict.fromkeys(outcome.case for outcome in outcomes):
        for store, fresh in _STORES.items():
            own = [each for each in outcomes if (each.case, each.fresh) == (name, fresh)]
            table.add_row(
                name,
                store,
                f"{sum(each.held for each in own)} of {len(own)}",
                f"{mean(each.high - each.low for each in own):.3f}",
                f"{mean(each.score for each in own):.3f}",
                f"{min(each.reached for each in own):.3f} to {max(each.reached for each in own):.3f}",
                f"{median(each.slowdown for each in own):.2f}",
            )
    return table


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--fitted", action="store_true", help="also port networks used to choose constants")
    add_seeds_option(parser)
    add_data_option(parser)


if __name__ == "__main__":
    sys.exit(run("porting.forecasts", TARGETS, measure, sys.argv[1:], _add_options))
