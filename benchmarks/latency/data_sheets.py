"""The shares of a data sheet's peaks that operators reach, and latency predictions based on them.

`python -m benchmarks.latency.data_sheets [--quick] [--json FILE]`

Measures this machine in float32 with one thread, as `mistify profile-device` does, and derives the peaks of
its core from the same measurements: twice the multiply-adds per second of the best operator, because data
sheets count two operations for each, and the bandwidth of copying large arrays. Then it predicts the networks
of several operators in three ways: by the formula of the paper (4.1), by Mistify's efficiency
(`mistify.costs.efficiency.MEASURED`), and by an efficiency fitted here to the other networks (leave-one-out).
The fitted efficiency is printed; `MEASURED` is such a fit.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from time import perf_counter
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from benchmarks.harness.run import Figures, Target, run
from mistify.costs.devices import OperatorTiming
from mistify.costs.efficiency import MEASURED, Efficiency, PeakShares
from mistify.costs.operators import Operation, OperatorKind
from mistify.profiling.measuring import BUDGET_SECONDS, measure_device

Array: TypeAlias = npt.NDArray[np.float64]

QUICK_SECONDS: Final = 20.0
FOLDS: Final = 5

#: Number of elements in an array larger than any cache, and number of times it is copied.
LARGE: Final = 2**26
COPIES: Final = 8

#: Terms: inference, operators; then for products and for depthwise convolutions multiply-adds, multiply-adds
#: per output channel, and bytes; then the bytes of other operators.
TERMS: Final = 9

TARGETS: Final[dict[str, Target]] = {
    "median_error": {"what": "Mistify's efficiency: median error", "max": 0.15},
    "p90_error": {"what": "Mistify's efficiency: 90th percentile of the error", "max": 0.35},
    "fitted_median_error": {"what": "efficiency fitted to this machine: median error", "max": 0.15},
    "fitted_p90_error": {
        "what": "efficiency fitted to this machine: 90th percentile of the error",
        "max": 0.3,
    },
}


class Peaks(NamedTuple):
    """GFLOP/s, with two operations per multiply-add, and GB/s."""

    compute_power: float
    memory_bandwidth: float


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("latency.data_sheets", TARGETS, measure, argv)


def measure(options: Namespace) -> Figures:
    """Measure this machine, predict latencies from its peaks, and return the figures."""
    table = measure_device(
        "this-machine", [1], budget_seconds=QUICK_SECONDS if options.quick else BUDGET_SECONDS
    )
    readings = [reading for reading in table.readings if not reading.integer]
    peaks = Peaks(2 * best_multiply_adds(readings), copied_per_second())
    console = Console()
    console.print(f"{peaks.compute_power:.0f} GFLOP/s, {peaks.memory_bandwidth:.1f} GB/s")
    console.print(fit(readings, peaks))
    figures = figures_of(readings, peaks)
    shown = Table("prediction", "median error", "9 of 10 below")
    for name, prefix in (("paper", "paper_"), ("Mistify's", ""), ("fitted here", "fitted_")):
        shown.add_row(name, *(f"{figures[f'{prefix}{key}_error']:.1%}" for key in ("median", "p90")))
    console.print(shown)
    return figures


def best_multiply_adds(readings: Sequence[OperatorTiming]) -> float:
    """Return the multiply-adds per second of the best operator, in units of 10^9."""
    return max(sum(o.multiply_adds for o in r.operations) / r.median_ms / 1e6 for r in readings)


def copied_per_second() -> float:
    """Return the fastest rate of reading and writing while copying a large array, in GB/s."""
    source, target = np.ones(LARGE, np.float32), np.zeros(LARGE, np.float32)
    seconds = []
    for _ in range(COPIES):
        began = perf_counter()
        np.copyto(target, source)
        seconds.append(perf_counter() - began)
    return 2 * source.nbytes / min(seconds) / 1e9


def figures_of(readings: Sequence[OperatorTiming], peaks: Peaks) -> dict[str, float]:
    """Return the errors for networks of several operators, as shares of the measured latency."""
    taken = np.array([1e3 * reading.median_ms for reading in readings])
    several = np.array([len(reading.operations) > 1 for reading in readings])
    predictions = {
        "paper_": np.array([paper_microseconds(reading.operations, peaks) for reading in readings]),
        "": np.array([microseconds(MEASURED, reading.operations, peaks) for reading in readings]),
        "fitted_": left_out(readings, peaks),
    }
    errors = {prefix: np.abs(predicted / taken - 1)[several] for prefix, predicted in predictions.items()}
    quantiles = {"median": 0.5, "p90": 0.9}
    return {
        f"{prefix}{key}_error": float(np.quantile(errors[prefix], share))
        for prefix in predictions
        for key, share in quantiles.items()
    }


def paper_microseconds(operations: Sequence[Operation], peaks: Peaks) -> float:
    """Return the latency at the peaks (paper 4.1)."""
    moved = sum(operation.bytes_moved for operation in operations) / peaks.memory_bandwidth
    return (moved + sum(operation.multiply_adds for operation in operations) / peaks.compute_power) / 1e3


def microseconds(efficiency: Efficiency, operations: Sequence[Operation], peaks: Peaks) -> float:
    """Return the latency predicted with an efficiency."""
    return efficiency.inference_us + sum(efficiency.microseconds(o, *peaks) for o in operations)


def left_out(readings: Sequence[OperatorTiming], peaks: Peaks) -> Array:
    """Return the predicted latency of each network in microseconds, with an efficiency fitted without it."""
    order = np.random.default_rng(0).permutation(len(readings))
    predicted = np.zeros(len(readings))
    for fold in range(FOLDS):
        without = set(order[fold::FOLDS])
        efficiency = fit([r for number, r in enumerate(readings) if number not in without], peaks)
        for number in without:
            predicted[number] = microseconds(efficiency, readings[number].operations, peaks)
    return predicted


def fit(readings: Sequence[OperatorTiming], peaks: Peaks) -> Efficiency:
    """Fit an efficiency to relative errors, with equal weights for operators in a network and alone."""
    rows = np.array([terms(reading.operations, peaks) for reading in readings])
    weights = np.sqrt([len(reading.operations) for reading in readings])
    taken = np.array([1e3 * reading.median_ms for reading in readings])
    relative = rows * (weights / taken)[:, None]
    scale = relative.max(axis=0)
    figures = nnls(relative / scale, weights)[0] / scale
    inference, operator, *products, memory = (float(figure) for figure in figures)
    return Efficiency(
        inference, operator, _peak_shares(*products[:3]), _peak_shares(*products[3:]), 1 / memory
    )


def _peak_shares(compute: float, at_one_channel: float, memory: float) -> PeakShares:
    """Return the shares of the peaks, given the time of each term as a multiple of its time at the peaks."""
    return PeakShares(1 / compute, at_one_channel / compute, 1 / memory)


def terms(operations: Sequence[Operation], peaks: Peaks) -> Array:
    """Return the terms of a network in microseconds at the peaks, and its number of operators."""
    total = np.zeros(TERMS)
    total[0] = 1.0
    for operation in operations:
        total[1] += operation.times
        compute = operation.multiply_adds / peaks.compute_power / 1e3
        moved = operation.bytes_moved / peaks.memory_bandwidth / 1e3
        if not compute:
            total[-1] += moved
        else:
            first = 5 if operation.kind is OperatorKind.DEPTHWISE else 2
            total[first : first + 3] += compute, compute / operation.c_out, moved
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
