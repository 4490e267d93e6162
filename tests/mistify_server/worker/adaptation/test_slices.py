"""The choice of a slice by measurements of a few of them."""

import numpy as np
import pytest

from executors.contract.slices import Slice
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import FLOPS, Costs, memory_axis
from mistify.costs.catalogue import HOST
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.costs.operators import Operation, OperatorKind
from mistify.costs.quantization import Quantization
from mistify.tflite.memory import memory_bytes
from mistify.tflite.slicing import OpenUnits
from mistify_server.worker.adaptation.latency import with_margin
from mistify_server.worker.adaptation.slices import SliceReading, measured_slice, slice_meter
from mistify_server.worker.packaging.conversion.cuttable import CuttableNetwork
from tests.mistify.tflite.networks_to_slice import converted, convolutional

LATENCY = "latency_ms@host"
MEMORY = memory_axis(Quantization.NONE)


def slice_with(outputs: int, expected: float) -> Slice:
    """A slice that consists of a dense layer with 1,000 inputs."""
    operation, count = Operation(OperatorKind.DENSE, 1, 1000, outputs), 1000 * outputs
    layer = LayerCost("dense", count, count, count, inputs=(0,), output=1, operations=(operation,))
    network = NetworkCost((layer,), (1000, outputs), (0,), (1,))
    return Slice((OpenUnits(np.arange(2)),), network, expected, network=lambda: None)


SLICES = [
    slice_with(outputs, expected)
    for outputs, expected in ((1000, 0.6), (2000, 0.7), (3000, 0.9), (4000, 0.8))
]


def predicted(one: Slice) -> float:
    return HOST.latency_ms(one.cost)


class Machine:
    """A machine that is slower than predicted by a factor for each slice, and what was measured on it."""

    def __init__(self, *factors: float) -> None:
        self._factors = dict(zip(SLICES, factors, strict=True))
        self.measured: list[int] = []

    def __call__(self, one: Slice) -> SliceReading:
        self.measured.append(SLICES.index(one))
        return SliceReading(self._factors[one])


def chosen(limit: float, machine: Machine) -> int:
    best, _ = measured_slice(
        SLICES, {LATENCY: limit / with_margin({LATENCY: 1.0})[LATENCY]}, (HOST,), machine
    )
    return SLICES.index(best)


@pytest.mark.parametrize(
    ("within", "factors", "best", "measured"),
    [
        (3, (1, 1, 1, 1), 2, [2]),  # more units are not better
        (1, (1, 1, 1, 1), 1, [1]),
        (2, (1.2, 1.2, 1.2, 1.2), 1, [2, 1]),  # slower than predicted
        (1, (0.5, 0.5, 0.5, 0.5), 2, [1, 2]),  # faster: a better one is within the limit
        (2, (1, 1, 1.1, 1), 1, [2, 1]),  # a slower one is not tried again
        (2, (1, 5, 1.1, 1), 0, [2, 1, 0]),
    ],
)
def test_the_best_slice_within_the_limit_is_measured(
    within: int, factors: tuple[float, ...], best: int, measured: list[int]
) -> None:
    machine = Machine(*factors)
    assert chosen(1.001 * predicted(SLICES[within]), machine) == best
    assert machine.measured == measured


def test_where_none_is_within_the_limit_it_is_the_one_that_exceeds_it_least() -> None:
    machine = Machine(2, 2, 2, 2)
    assert chosen(1.5 * predicted(SLICES[0]), machine) == 0
    assert machine.measured == [0]


def test_memory_in_the_file_corrects_the_predictions() -> None:
    def measure(one: Slice) -> SliceReading:
        return SliceReading(stored={MEMORY: 2.0 * costs_of(one)[MEMORY]})

    def costs_of(one: Slice) -> Costs:
        return SliceReading().costs(one.cost, ())

    limit = 2.5 * costs_of(SLICES[1])[MEMORY]
    best, reading = measured_slice(SLICES, {MEMORY: limit}, (), measure)
    assert best is SLICES[1]
    assert reading.costs(best.cost, ())[MEMORY] == 2 * costs_of(best)[MEMORY]


def test_a_slice_is_cut_only_for_limits_that_its_file_decides() -> None:
    network, places = converted(convolutional)
    units = tuple(OpenUnits(np.arange(3)) for _ in places.units)
    cuttable = CuttableNetwork(network, places)
    one = Slice(units, SLICES[0].cost, 0.5, network=lambda: None)
    networks = [(QuantizationConfig(), cuttable)]
    assert slice_meter([], {FLOPS: 1.0}, ())(one) == SliceReading()
    stored = slice_meter(networks, {MEMORY: 1.0}, ())(one)
    assert stored == SliceReading(1.0, {MEMORY: memory_bytes(cuttable.cut(units))})
    taken = slice_meter(networks, {LATENCY: 1.0}, (HOST,))(one)
    assert taken.deviation > 0
    assert not taken.stored
