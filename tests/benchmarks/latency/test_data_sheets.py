"""Fitting recovers an efficiency from the latencies that it predicts."""

from dataclasses import astuple

import pytest

from benchmarks.latency.data_sheets import Peaks, best_multiply_adds, figures_of, fit, microseconds
from mistify.costs.devices import OperatorTiming
from mistify.costs.efficiency import Efficiency, PeakShares
from mistify.costs.operators import Operation, OperatorKind
from mistify.profiling.samples import samples

PEAKS = Peaks(compute_power=20.0, memory_bandwidth=4.0)
EFFICIENCY = Efficiency(2.0, 0.5, PeakShares(0.4, 12.0, 1.5), PeakShares(0.1, 30.0, 0.8), 0.6)


def readings() -> list[OperatorTiming]:
    return [
        OperatorTiming(
            chain, integer=False, threads=1, median_ms=microseconds(EFFICIENCY, chain, PEAKS) / 1e3
        )
        for chain in samples(integer=False)
    ]


def flat(efficiency: Efficiency) -> list[float]:
    inference, operator, product, depthwise, memory = astuple(efficiency)
    return [inference, operator, *product, *depthwise, memory]


def test_a_known_efficiency_is_recovered() -> None:
    assert flat(fit(readings(), PEAKS)) == pytest.approx(flat(EFFICIENCY), rel=1e-6)
    figures = figures_of(readings(), PEAKS)
    assert figures["fitted_p90_error"] < 1e-6
    assert figures["paper_median_error"] > 0.5


def test_the_peak_is_taken_from_the_best_operator() -> None:
    operation = Operation(OperatorKind.CONVOLUTION, positions=100, c_in=10, c_out=10)
    slow, fast = (OperatorTiming((operation,), False, 1, ms) for ms in (0.02, 0.01))
    assert best_multiply_adds([slow, fast]) == pytest.approx(10_000 / 1e-5 / 1e9)
