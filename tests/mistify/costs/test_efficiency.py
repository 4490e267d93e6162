"""Latencies from the fraction of the data sheet's peak that operators reach, computed by hand."""

import math
from dataclasses import replace

import pytest

from mistify.costs.catalogue import catalogue, data_sheet
from mistify.costs.efficiency import Efficiency, PeakShares
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.costs.profiles import NominalProfile

EFFICIENCY = Efficiency(
    inference_us=2.0,
    operator_us=1.0,
    product=PeakShares(compute=0.5, half_at=16.0, memory=2.0),
    depthwise=PeakShares(compute=0.2, half_at=8.0, memory=1.0),
    memory=0.5,
)
CONVOLUTION = Operation(OperatorKind.CONVOLUTION, positions=10, c_in=3, c_out=16, kernel=9)
DEPTHWISE = Operation(OperatorKind.DEPTHWISE, positions=10, c_in=8, c_out=8, kernel=9)
PRODUCT = Operation(OperatorKind.PRODUCT, positions=8, c_in=4, c_out=16, times=2)
ADD = elementwise(OperatorKind.ADD, 10, 20)


@pytest.mark.parametrize(
    ("operation", "multiply_adds", "bytes_moved"),
    [
        (CONVOLUTION, 10 * 3 * 16 * 9, 4 * (3 * 16 * 9 + 160)),
        (DEPTHWISE, 10 * 8 * 9, 4 * (8 * 9 + 80)),
        (PRODUCT, 2 * 8 * 4 * 16, 4 * 2 * 8 * 16),  # both operands are computed: no weights
        (ADD, 0, 4 * 200),
    ],
)
def test_an_operator_has_multiply_adds_and_bytes_moved(
    operation: Operation, multiply_adds: int, bytes_moved: int
) -> None:
    assert (operation.multiply_adds, operation.bytes_moved) == (multiply_adds, bytes_moved)


@pytest.mark.parametrize(
    ("operation", "taken"),
    [
        (CONVOLUTION, 1 + 4_320 / (0.25 * 4e3) + 2_368 / (2.0 * 1e3)),  # half the peak at 16 channels
        (DEPTHWISE, 1 + 720 / (0.1 * 4e3) + 608 / 1e3),
        (PRODUCT, 2 + 1_024 / (0.25 * 4e3) + 1_024 / (2.0 * 1e3)),
        (ADD, 1 + 800 / (0.5 * 1e3)),
    ],
)
def test_the_latency_of_an_operator_follows_from_its_efficiency(operation: Operation, taken: float) -> None:
    assert EFFICIENCY.microseconds(operation, compute_power=4.0, memory_bandwidth=1.0) == pytest.approx(taken)


def network(*operations: Operation) -> NetworkCost:
    flops = sum(operation.multiply_adds for operation in operations)
    return NetworkCost((LayerCost("all", flops, 0, 0, (0,), 1, operations=operations),), (48, 8), (0,), (1,))


def test_the_latency_of_a_network_is_the_sum_over_its_operators() -> None:
    board = NominalProfile("board", 4.0, 1.0, efficiency=EFFICIENCY)
    both = board.latency_ms(network(CONVOLUTION, ADD))
    assert both == pytest.approx((2 + (1 + 4.32 + 1.184) + (1 + 1.6)) / 1e3)
    assert board.slower(3.0).latency_ms(network(CONVOLUTION, ADD)) == pytest.approx(3 * both)
    assert replace(board, efficiency=None).slower(3.0).latency_ms(network(CONVOLUTION)) == pytest.approx(
        3 * (4 * 8 / 1e6 + 4_320 / 4e6)
    )


@pytest.mark.parametrize("profile", catalogue().values(), ids=str)
def test_predictions_stay_below_the_peak_of_the_data_sheet(profile: NominalProfile) -> None:
    """Data sheets count a multiply-add as two operations: it takes at least twice as long."""
    wide = Operation(OperatorKind.CONVOLUTION, positions=400, c_in=512, c_out=100_000)
    at_peak = network(wide).flops / (profile.compute_power * 1e6)
    assert profile.latency_ms(network(wide)) > 1.99 * at_peak


@pytest.mark.parametrize(
    ("name", "least_ms"), [("jetson-nano", 50 * 5e-3), ("v100", 50 * 5e-3), ("edge-tpu", 0.5)]
)
def test_predictions_for_accelerators_include_their_start_up(name: str, least_ms: float) -> None:
    """A GPU is started for every operator, an Edge TPU for every inference."""
    accelerator, small = catalogue()[name], network(*[ADD] * 50)
    plain = replace(accelerator, inference_us=0.0, operator_us=0.0)
    assert plain == replace(
        data_sheet(name, accelerator.compute_power, accelerator.memory_bandwidth),
        precisions=accelerator.precisions,
    )
    assert accelerator.latency_ms(small) == pytest.approx(plain.latency_ms(small) + least_ms)
    assert "extrapolated" in accelerator.evidence
    assert (plain.evidence, catalogue()["raspberry-pi"].evidence) == ("its data sheet",) * 2


def test_fewer_channels_never_take_longer() -> None:
    taken = [
        EFFICIENCY.microseconds(replace(CONVOLUTION, c_in=channels, c_out=channels), 4.0, 1.0)
        for channels in range(1, 100)
    ]
    assert taken == sorted(taken)
    assert EFFICIENCY.product.compute_with(16) == 0.25
    assert math.isclose(EFFICIENCY.product.compute_with(10**9), 0.5, rel_tol=1e-6)
