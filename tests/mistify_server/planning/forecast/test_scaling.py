import numpy as np
import pytest

from mistify.costs.budget import FLOPS, PARAMS
from mistify_server.planning.forecast.scaling import CostScaling, distance

#: Scales 0 to 3: multiply-adds quadruple at each; parameters do not grow at first.
SCALED = [
    {FLOPS: 1.0, PARAMS: 10.0},
    {FLOPS: 4.0, PARAMS: 10.0},
    {FLOPS: 16.0, PARAMS: 20.0},
    {FLOPS: 64.0, PARAMS: 40.0},
]
SOURCE = SCALED[2]


@pytest.fixture
def scaling() -> CostScaling:
    return CostScaling(SCALED, SOURCE)


@pytest.mark.parametrize(
    ("budget", "scale"),
    [
        ({FLOPS: 16.0}, 2.0),
        ({FLOPS: 8.0}, 1.5),
        ({PARAMS: 20.0, FLOPS: 4.0}, 1.0),
        ({PARAMS: 10.0}, 1.0),
        ({FLOPS: 0.1}, 0.0),
        ({FLOPS: 1e9}, 3.0),
        ({}, 3.0),
    ],
)
def test_the_scale_is_the_largest_one_within_all_limits(
    scaling: CostScaling, budget: dict[str, float], scale: float
) -> None:
    assert scaling.within(budget) == pytest.approx(scale)


def test_costs_between_scales_are_interpolated_logarithmically(scaling: CostScaling) -> None:
    assert scaling.costs(1.5) == pytest.approx({FLOPS: 8.0, PARAMS: 10 * 2**0.5})
    assert scaling.costs(scaling.whole) == pytest.approx(SOURCE)


def test_costs_are_interpolated_as_by_numpy(scaling: CostScaling) -> None:
    """Bit by bit, because plans have them."""
    scales = [0.0, 0.1, 0.7, 1.0, 1.3, 2.0, 2.9, 3.0]
    for axis in (FLOPS, PARAMS):
        logs = np.interp(scales, range(4), np.log2([costs[axis] for costs in SCALED]))
        assert [costs[axis] for costs in scaling.costs_at(scales)] == (2**logs).tolist()


def test_a_larger_but_faster_network_replaces_a_smaller_one() -> None:
    """The network with a quarter of the multiply-adds is slower than the whole one."""
    latency = "latency_ms@host@dynamic"
    scaling = CostScaling(
        [{**costs, latency: ms} for costs, ms in zip(SCALED, (1.0, 8.0, 4.0, 16.0), strict=True)],
        {**SOURCE, latency: 4.0},
    )
    assert scaling.within({latency: 5.0}) > 2.0
    assert scaling.within({latency: 2.0}) == pytest.approx(0.5)
    assert scaling.costs(1.0)[latency] == pytest.approx(8.0)


def test_a_source_is_widened_until_every_cost_is_reached_and_never_narrowed(scaling: CostScaling) -> None:
    assert scaling.exceeding({FLOPS: 32.0, PARAMS: 30.0}) == pytest.approx(2 + 0.585, abs=1e-3)
    assert scaling.exceeding({FLOPS: 2.0}) == 2.0


def test_the_distance_is_the_largest_number_of_halvings_on_any_axis() -> None:
    assert distance(SOURCE, {FLOPS: 4.0, PARAMS: 10.0}) == 2.0
    assert distance(SOURCE, {FLOPS: 32.0}) == 0.0


def test_halvings_are_counted_from_the_source(scaling: CostScaling) -> None:
    assert scaling.halvings({FLOPS: 4.0}) == 2.0
    assert scaling.halvings({FLOPS: 64.0}) == -2.0
