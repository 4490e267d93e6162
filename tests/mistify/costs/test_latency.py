"""Latency models: the latency of operators, term by term."""

from dataclasses import replace

import pytest

from mistify.costs.latency import LatencyModel, RoutineModel, Tile, routine_of, terms_between, terms_of
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.costs.profiles import MeasuredProfile, NominalProfile, device_profile

CONVOLUTION = Operation(OperatorKind.CONVOLUTION, positions=10, c_in=3, c_out=20, kernel=9)


@pytest.mark.parametrize(
    ("operation", "routine"),
    [
        (CONVOLUTION, "convolution"),
        (Operation(OperatorKind.CONVOLUTION, 10, 3, 20), "convolution-1x1"),
        (Operation(OperatorKind.CONVOLUTION, 10, 3, 20, stride=4), "convolution"),
        (Operation(OperatorKind.DENSE, 1, 3, 20), "dense-vector"),
        (Operation(OperatorKind.DENSE, 2, 3, 20), "dense"),
        (elementwise(OperatorKind.ADD, 2, 3), "add"),
    ],
)
def test_each_kind_of_product_has_its_own_routine(operation, routine):
    assert routine_of(operation) == routine


def test_a_partly_filled_tile_counts_as_full():
    """Pad 10 positions to tiles of 4, 20 channels to tiles of 16, and 3 input channels to steps of 8."""
    terms = terms_of(CONVOLUTION, Tile(rows=4, columns=16, depth=8))
    filled = 12 * 32 * (9 * 8)
    assert terms[:5] == (1.0, filled, 10 * 32 * 72, 10 * 32 * 72, 3 * 2)
    assert terms_of(Operation(OperatorKind.CONVOLUTION, 12, 8, 32, 9), Tile(4, 16, 8))[1] == filled


@pytest.mark.parametrize(("channels", "filled"), [(3, 16), (16, 16), (17, 32), (32, 32), (48, 64)])
def test_few_channels_use_a_narrow_tile(channels, filled):
    """XNNPACK's float32 tiles have 32 columns, or 16 where these suffice."""
    tile = Tile(columns=32, narrow=16)
    product = Operation(OperatorKind.CONVOLUTION, 10, 3, channels)
    assert terms_of(product, tile)[1:3] == (10 * filled * 3,) * 2
    assert terms_of(product, tile)[4] == 10 * (2 if channels > 32 else 1)
    assert terms_of(product, Tile(columns=32))[1] == 10 * 3 * (64 if channels > 32 else 32)


def test_an_operator_without_channels_has_no_tiles():
    """This happens when the last unit of a group is removed to see how much it costs."""
    nothing = replace(CONVOLUTION, c_out=0)
    assert terms_of(nothing, Tile(4, 16, 8))[1] == terms_of(nothing, Tile(4, 32, 8, narrow=16))[1] == 0


def test_latency_is_proportional_to_the_number_of_runs():
    operation = Operation(OperatorKind.PRODUCT, 8, 4, 6)
    once, thrice = (
        terms_of(Operation(OperatorKind.PRODUCT, 8, 4, 6, times=times), Tile(4, 8)) for times in (1, 3)
    )
    assert thrice == tuple(3 * term for term in once)
    assert terms_of(operation, Tile(4, 8)) == once


def model(start: float, microseconds_per_element: float) -> LatencyModel:
    """Return a model in which only additions and conversions take time, proportional to their elements."""
    figures = (0.0, 0.0, microseconds_per_element, 0.0, 0.0, 0.0, 0.0)
    routine = RoutineModel(tile=Tile(), figures=figures)
    return LatencyModel(start=start, routines=dict.fromkeys(("add", "quantize", "dequantize"), routine))


def network(elements: int) -> NetworkCost:
    layer = LayerCost(
        "sum", 0, 0, 0, (0,), 1, operations=(elementwise(OperatorKind.ADD, 10, elements // 10),)
    )
    return NetworkCost((layer,), (elements, elements), (0,), (1,))


def test_latency_is_a_constant_plus_that_of_all_operators():
    assert model(5.0, 0.1).latency_ms(list(network(100).operations)) == pytest.approx((5 + 10) / 1e3)


def test_reading_the_output_of_the_previous_operator_takes_time():
    """Except between two operators that only copy: a single thread runs both."""
    convolution = Operation(OperatorKind.CONVOLUTION, 10, 3, 4, 9)
    product = Operation(OperatorKind.PRODUCT, 10, 4, 6, times=2)
    reshape = elementwise(OperatorKind.RESHAPE, 10, 6)
    assert terms_between([]) == terms_between([convolution]) == (0.0, 0.0)
    assert terms_between([convolution, product]) == (1.0, 2.0 * product.read)
    crossing = [reshape, reshape, convolution, reshape]
    assert terms_between(crossing) == (2.0, convolution.read + reshape.read)
    between = LatencyModel(start=1.0, routines={}, between=(0.5, 0.25))
    free = RoutineModel(tile=Tile(), figures=(0.0,) * 11)
    between = between.model_copy(update={"routines": {"convolution": free, "product": free}})
    assert between.latency_ms([convolution, product]) == pytest.approx(
        (1 + 0.5 + 0.25 * 2 * product.read) / 1e3
    )


def test_each_number_of_threads_has_its_own_profile():
    profile = device_profile("board", model(4.0, 0.05), integer=False, threads=2)
    assert (profile.name, profile.threads) == ("board@2-threads", 2)
    assert profile.latency_ms(network(10)) == pytest.approx((4 + 0.5) / 1e3)
    assert device_profile("board", model(4.0, 0.05), integer=True, threads=2).name == "board@2-threads@int8"
    nominal = NominalProfile("board", 1.0, 1.0).with_threads(4)
    assert nominal == replace(NominalProfile("board", 1.0, 1.0), name="board@4-threads", threads=4)
    assert nominal.with_threads(1) == NominalProfile("board", 1.0, 1.0)


def test_energy_is_power_times_latency():
    profile = device_profile("board", model(1.0, 0.1), integer=False, watts=3.0).slower(2.0)
    assert profile.energy_mj(network(10)) == pytest.approx(2 * 3.0 * (1 + 1) / 1e3)
    assert device_profile("board", model(1.0, 0.1), integer=False).energy_mj(network(10)) is None


def test_an_int8_network_quantizes_its_inputs_and_dequantizes_its_outputs():
    profile = device_profile("board", model(1.0, 0.1), integer=True)
    assert profile.name == "board@int8"
    assert profile.latency_ms(network(100)) == pytest.approx((1 + 3 * 10) / 1e3)


def test_a_slowdown_scales_all_latencies():
    profile = MeasuredProfile("board", model(1.0, 0.1), integer=False)
    assert profile.slower(3.0).latency_ms(network(10)) == pytest.approx(3 * profile.latency_ms(network(10)))


def products(microseconds_per_weight: float) -> LatencyModel:
    """Return a model in which only dense layers take time, proportional to their weights."""
    figures = (0.0, microseconds_per_weight, *[0.0] * 9)
    return LatencyModel(start=0.0, routines={"dense-vector": RoutineModel(tile=Tile(), figures=figures)})


def test_dynamic_quantization_runs_only_large_kernels_in_integers():
    """Each weight is one multiply-add: 1,000 of 1 us each, and 1,024 of 0.1 us each."""
    small, large = (Operation(OperatorKind.DENSE, 1, c_in, 8) for c_in in (125, 128))
    layers = tuple(
        LayerCost(f"dense_{place}", 0, 0, 0, (place,), place + 1, operations=(operation,))
        for place, operation in enumerate((small, large))
    )
    dynamic = MeasuredProfile("board", products(1.0), integer=False, factor=2.0, kernels=products(0.1))
    whole = NetworkCost(layers, (125, 8, 8), (0,), (2,))
    assert dynamic.latency_ms(whole) == pytest.approx(2 * (1_000 + 102.4) / 1e3)
    assert replace(dynamic, kernels=None).latency_ms(whole) == pytest.approx(2 * 2_024 / 1e3)
