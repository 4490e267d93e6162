"""Accuracy of a measured device's latency predictions for unmeasured networks.

`python -m benchmarks.latency.prediction [--quick] [--json FILE]`

Profiles this machine with 1 and 2 threads as `mistify profile-device` does, then predicts the latency of
networks of three families (ResNet-8, MobileNet, convolutions over time with dense layers), each at many
widths, in float32 and int8. Predictions are compared with LiteRT's latencies: the median of the fastest of
several bursts, measured during and after the profiling. Targets apply to the worst of the four settings, over
the networks of all families.

It needs a quiet machine: prefix it with `chrt --reset-on-fork --fifo 1` where that is permitted. Networks are
converted in a separate process, which then runs with normal priority.
"""

import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import cycle, product
from multiprocessing import get_context
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import kendalltau

from benchmarks.harness.run import Figures, Target, median_seconds, run
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import MeasuredProfile
from mistify.litert import Interpreter
from mistify.profiling.measuring import BUDGET_SECONDS, measure_device
from mistify_server.hardware.fitting import fitted

THREADS: Final = (1, 2)

#: Networks per family; quick runs use few, and spend little time on the profile.
COUNT: Final = 12
QUICK_COUNT: Final = 2
QUICK_SECONDS: Final = 20.0

#: Number of profile measurements between two bursts, inferences per burst, and warm-up inferences before it.
EVERY: Final = 10
RUNS: Final = 40
#: Bursts per network at the end.
ROUNDS: Final = 15
WARM_UP_RUNS: Final = 5

TARGETS: Final[dict[str, Target]] = {
    "worst_median_error": {
        "what": "median prediction error, worst setting",
        "max": 0.10,
        "full_run_only": True,
    },
    "worst_p90_error": {
        "what": "90th percentile of the prediction error, worst setting",
        "max": 0.20,
        "full_run_only": True,
    },
    "worst_kendall_tau": {
        "what": "Kendall's tau of predicted and measured latencies, worst setting",
        "min": 0.9,
        "full_run_only": True,
    },
    "profile_seconds": {"what": "time to measure a device, s", "max": 180.0},
}


class Network(NamedTuple):
    """A network of a family, converted at both precisions."""

    family: str
    cost: NetworkCost
    float32: bytes
    int8: bytes


class Row(NamedTuple):
    """The latencies of a network with one setting, in milliseconds."""

    family: str
    integer: bool
    threads: int
    predicted: float
    measured: float


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("latency.prediction", TARGETS, measure, argv)


def measure(options: Namespace) -> Figures:
    """Profile, predict and measure; return the figures."""
    count, seconds = (QUICK_COUNT, QUICK_SECONDS) if options.quick else (COUNT, BUDGET_SECONDS)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        networks = pool.submit(converted, count).result()
    contest = Contest(networks)
    began = perf_counter()
    table = measure_device("this-machine", THREADS, budget_seconds=seconds, progress=contest.go_on)
    profile_seconds = perf_counter() - began
    contest.finish()
    profiles, _ = fitted(table)
    rows = list(contest.rows(profiles))
    console = Console()
    console.print(_table(rows))
    return {**figures_of(rows), "profile_seconds": profile_seconds}


class Contest:
    """Measurements of networks taken during profiling, so that a busy machine slows both.

    Args:
        networks: Networks, each measured with every setting.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        self._entries = [
            _Entry(network, integer, threads)
            for integer, threads in product((False, True), THREADS)
            for network in networks
        ]
        self._next = cycle(self._entries)
        self._calls = 0

    def go_on(self, share: float) -> None:
        """Run a burst of inferences of the next network, in some of the calls."""
        self._calls += 1
        if self._calls % EVERY == 0:
            next(self._next).measure()

    def finish(self) -> None:
        """Measure all networks a few more times, to compensate for disturbances of single bursts."""
        for _ in range(ROUNDS):
            for entry in self._entries:
                entry.measure()

    def rows(self, profiles: Sequence[MeasuredProfile]) -> Iterator[Row]:
        """Return the measured and the predicted latencies."""
        by_setting = {(profile.integer, profile.threads): profile for profile in profiles}
        for entry in self._entries:
            predicted = by_setting[entry.integer, entry.threads].latency_ms(entry.network.cost)
            yield Row(entry.network.family, entry.integer, entry.threads, predicted, entry.median_ms)


@dataclass
class _Entry:
    """A network with a setting; `median_ms` is the best of its bursts."""

    network: Network
    integer: bool
    threads: int
    median_ms: float = math.inf

    def measure(self) -> None:
        content = self.network.int8 if self.integer else self.network.float32
        interpreter = Interpreter(model_content=content, num_threads=self.threads)
        (entry,) = interpreter.get_input_details()
        interpreter.resize_tensor_input(entry["index"], [1, *entry["shape"][1:]])
        interpreter.allocate_tensors()
        median_seconds(interpreter.invoke, WARM_UP_RUNS)
        self.median_ms = min(self.median_ms, 1e3 * median_seconds(interpreter.invoke, RUNS))


def converted(count: int) -> list[Network]:
    """Return the converted networks; runs in a separate process."""
    from benchmarks.latency.networks import samples  # noqa: PLC0415

    return [_converted(family, model) for family, model in samples(count)]


def figures_of(rows: Sequence[Row]) -> dict[str, float]:
    """Return the worst figures over the settings."""
    settings = list(_by_setting(rows).values())
    return {
        "worst_median_error": max(float(np.median(_errors(group))) for group in settings),
        "worst_p90_error": max(float(np.quantile(_errors(group), 0.9)) for group in settings),
        "worst_kendall_tau": min(_tau(group) for group in settings),
    }


def _converted(family: str, model: Any) -> Network:
    from executors.structure import analyse  # noqa: PLC0415
    from mistify.config.package.quantization import QuantizationConfig  # noqa: PLC0415
    from mistify.costs.quantization import Quantization  # noqa: PLC0415
    from mistify_server.worker.packaging.conversion.converter import convert  # noqa: PLC0415

    (tensor,) = model.inputs
    examples = {tensor.name: np.random.default_rng(0).random((4, *tensor.shape[1:]), np.float32)}
    int8 = QuantizationConfig(precision=Quantization.INT8)
    return Network(family, analyse(model).network(), convert(model), convert(model, int8, examples))


def _by_setting(rows: Sequence[Row]) -> Mapping[tuple[bool, int], list[Row]]:
    groups: dict[tuple[bool, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.integer, row.threads), []).append(row)
    return groups


def _errors(rows: Sequence[Row]) -> list[float]:
    return [abs(row.predicted / row.measured - 1) for row in rows]


def _tau(rows: Sequence[Row]) -> float:
    return float(kendalltau([row.predicted for row in rows], [row.measured for row in rows]).statistic)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="Predicted and measured latency of unseen networks", title_justify="left")
    for column in ("precision", "threads", "family", "median error", "9 of 10 below", "tau", "measured, us"):
        table.add_column(column, justify="left" if column in ("precision", "family") else "right")
    for (integer, threads), group in _by_setting(rows).items():
        for family in dict.fromkeys(row.family for row in group):
            _add(table, integer, threads, family, [row for row in group if row.family == family])
        _add(table, integer, threads, "all", group)
        table.add_section()
    return table


def _add(table: Table, integer: bool, threads: int, family: str, rows: Sequence[Row]) -> None:
    errors, milliseconds = _errors(rows), [1e3 * row.measured for row in rows]
    table.add_row(
        "int8" if integer else "float32",
        str(threads),
        family,
        f"{np.median(errors):.1%}",
        f"{np.quantile(errors, 0.9):.1%}",
        f"{_tau(rows):.3f}",
        f"{min(milliseconds):.0f} to {max(milliseconds):.0f}",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
