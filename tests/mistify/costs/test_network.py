import pytest

from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, MEMORY, PARAMS, SIZE
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost, multiply_adds
from mistify.costs.operators import Operation, OperatorKind, elementwise, with_memory
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import STORED, Quantization


def layer(name, inputs, output, multiply_adds=0, weights=0, *, in_place=False, stored=None):
    stored = weights if stored is None else stored
    return LayerCost(name, multiply_adds, weights, stored, tuple(inputs), output, in_place)


def residual(relu_in_place=True):
    """input(0) 48 -> a(1) 64 -> b(2) 100 -> c(3) 64; a + c -> sum(4) 64 -> relu(5) 64 -> pool(6) 4."""
    layers = (
        layer("a", [0], 1, 1_000, 100, stored=90),
        layer("b", [1], 2, 2_000, 200),
        layer("c", [2], 3, 3_000, 300),
        layer("sum", [1, 3], 4),
        layer("relu", [4], 5, in_place=relu_in_place),
        layer("pool", [5], 6),
    )
    return NetworkCost(layers, (48, 64, 100, 64, 64, 64, 4), (0,), (6,))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"c_in": 128, "c_out": 10}, 1_280),  # a dense layer
        ({"c_in": 3, "c_out": 16, "s_kernel": 9, "s_out": 32 * 32}, 442_368),  # ResNet-8's first
        ({"c_in": 8, "c_out": 8, "s_kernel": 9, "s_out": 25, "groups": 8}, 1_800),  # depthwise
        ({"c_in": 8, "c_out": 16, "s_kernel": 9, "s_out": 25, "groups": 8}, 3_600),  # multiplier 2
        ({"c_in": 8, "c_out": 12, "s_kernel": 9, "s_out": 25, "groups": 4}, 5_400),  # grouped
    ],
)
def test_multiply_adds_match_values_computed_by_hand(arguments, expected):
    assert multiply_adds(**arguments) == expected


def test_the_peak_of_a_residual_block_includes_the_shortcut():
    # While c runs, a (64, for the sum), b (100) and c (64) are alive: 228. While b runs 164, at the sum 192.
    assert residual().activation_bytes() == 4 * 228


def test_the_shortcut_stays_alive():
    network = residual()
    plain = (*network.layers[:3], layer("sum", [3], 4), *network.layers[4:])
    # Without a shortcut, only two neighbouring tensors are alive at once.
    assert NetworkCost(plain, network.elements, (0,), (6,)).activation_bytes() == 4 * 164


def test_an_activation_runs_in_place():
    layers = (layer("a", [0], 1), layer("relu", [1], 2, in_place=True))
    assert NetworkCost(layers, (10, 50, 50), (0,), (2,)).activation_bytes() == 4 * 60
    apart = (layer("a", [0], 1), layer("relu", [1], 2))
    assert NetworkCost(apart, (10, 50, 50), (0,), (2,)).activation_bytes() == 4 * 100


def test_a_tensor_with_other_readers_is_not_overwritten():
    layers = (
        layer("a", [0], 1),
        layer("relu", [1], 2, in_place=True),
        layer("sum", [1, 2], 3),
    )
    assert NetworkCost(layers, (10, 50, 50, 50), (0,), (3,)).activation_bytes() == 4 * 150


def test_an_input_is_not_overwritten():
    layers = (layer("relu", [0], 1, in_place=True),)
    assert NetworkCost(layers, (10, 10), (0,), (1,)).activation_bytes() == 4 * 20


def test_an_output_is_not_overwritten():
    layers = (layer("logits", [0], 1), layer("relu", [1], 2, in_place=True))
    assert NetworkCost(layers, (1, 10, 10), (0,), (1, 2)).activation_bytes() == 4 * 20


def test_outputs_stay_alive_to_the_end():
    layers = (layer("a", [0], 1), layer("b", [1], 2), layer("c", [2], 3))
    elements = (1, 100, 10, 20)
    assert NetworkCost(layers, elements, (0,), (3,)).activation_bytes() == 4 * 110
    assert NetworkCost(layers, elements, (0,), (1, 3)).activation_bytes() == 4 * 130


def test_an_unused_tensor_is_freed():
    layers = (layer("dead", [0], 1), layer("a", [0], 2))
    assert NetworkCost(layers, (10, 100, 50), (0,), (2,)).activation_bytes() == 4 * 110


def test_a_chain_of_reshapes_is_one_storage():
    layers = (
        layer("a", [0], 1),
        layer("relu", [1], 2, in_place=True),
        layer("flatten", [2], 3, in_place=True),
        layer("dense", [3], 4),
    )
    assert NetworkCost(layers, (10, 60, 60, 60, 5), (0,), (4,)).activation_bytes() == 4 * 70


def test_costs_of_a_network_are_sums_over_its_layers():
    network = residual()
    assert (network.flops, network.params) == (6_000, 600)
    assert network.weight_bytes() == 4 * 590
    assert network.memory_bytes() == 4 * 590 + 4 * 228
    assert network.size_bytes() == 4 * 590 + 845 + 3 * 452 + 2 * 240


def biased():
    """Return a convolution (2,000 weights, 20 biases) and a dense layer (200, 10) on 300 and 50 elements."""
    convolution = LayerCost("a", 9_000, 2_020, 2_020, (0,), 1, stored_biases=20)
    dense = LayerCost("b", 200, 210, 210, (1,), 2, stored_biases=10)
    return NetworkCost((convolution, dense), (300, 50, 10), (0,), (2,))


@pytest.mark.parametrize(
    ("precision", "weights", "activations"),
    [
        ("none", 4 * 2_230, 4 * 350),
        ("float16", 2 * 2_230, 4 * 350),
        ("dynamic", 2_000 + 4 * (200 + 30), 4 * 350),  # the dense layer is too small to be quantized
        ("int8", 2_200 + 4 * 30, (4 + 1) * 300),  # biases are int32; the float input is quantized
        ("int8-qat", 2_200 + 4 * 30, (4 + 1) * 300),
    ],
)
def test_bytes_by_precision(precision, weights, activations):
    network, precision = biased(), Quantization(precision)
    assert network.weight_bytes(precision) == weights
    assert network.memory_bytes(precision) == weights + activations
    storage = precision.storage
    channels = 20 if precision is Quantization.DYNAMIC else 30
    around = storage.frame + 2 * storage.weighted + channels * storage.channel
    assert network.size_bytes(precision) == weights + around


def test_an_integer_package_copies_float_inputs_and_outputs():
    grown = NetworkCost((layer("grow", [0], 1), layer("shrink", [1], 2)), (10, 100, 90), (0,), (2,))
    integer = Quantization.INT8
    # While "shrink" runs, 100 + 90 integers are alive, and then 90 integers and their copies as floats.
    assert grown.activation_bytes(integer) == 90 + 4 * 90
    assert grown.activation_bytes(integer, integer_inputs=True) == 100 + 90


def test_an_operator_without_an_integer_kernel_computes_on_copies_in_floats():
    made = elementwise(OperatorKind.ACTIVATION, 1, 50)
    layers = (
        layer("before", [0], 1),
        LayerCost("floats", 0, 0, 0, (1,), 2, operations=(with_memory(made, float_only=True),)),
        layer("after", [2], 3),
    )
    network = NetworkCost(layers, (10, 50, 50, 10), (0,), (3,))
    assert network.activation_bytes(Quantization.INT8) == 4 * (50 + 50)
    assert network.activation_bytes() == 4 * (50 + 50)


def test_tensors_between_the_operators_of_a_layer_are_alive():
    convolution = Operation(OperatorKind.CONVOLUTION, 10, 3, 6)
    activation = elementwise(OperatorKind.ACTIVATION, 10, 6)
    fused = LayerCost("fused", 180, 18, 18, (0,), 1, operations=(convolution,))
    apart = LayerCost("apart", 180, 18, 18, (0,), 1, operations=(convolution, activation))
    several = LayerCost(
        "several", 180, 18, 18, (0,), 1, operations=(convolution, with_memory(activation, scratch=60))
    )
    peaks = [NetworkCost((one,), (30, 60), (0,), (1,)).activation_bytes() for one in (fused, apart, several)]
    assert peaks == [4 * (30 + 60), 4 * (60 + 60), 4 * (60 + 60 + 60)]


def test_latency_matches_a_value_computed_by_hand():
    # 4 bytes x (590 weights + 64 + 100 + 64 + 64 + 4 activations) at 1 GB/s,
    # 6,000 multiply-adds at 2 GFLOP/s.
    milliseconds = NominalProfile("bench", compute_power=2.0, memory_bandwidth=1.0).latency_ms(residual())
    assert milliseconds == pytest.approx(4 * 886 / 1e6 + 6_000 / 2e6)


def test_costs_have_an_entry_for_every_axis():
    costs = costs_of(residual(), [NominalProfile("bench", 2.0, 1.0)])
    stored = [
        f"{axis}@{precision}"
        for axis in (MEMORY, SIZE, "energy_mj@bench")
        for precision in ("float16", "dynamic", "int8")
    ]
    stored.append("memory_bytes@int8-inputs")
    assert set(costs) == {FLOPS, PARAMS, MEMORY, SIZE, "latency_ms@bench", "energy_mj@bench", *stored}
    assert costs[FLOPS] == 6_000
    assert costs["memory_bytes@int8"] == 590 + (4 + 1) * 48  # the input in floats, and its copy in integers
    assert costs["memory_bytes@int8-inputs"] == 590 + 228


@pytest.mark.parametrize("precision", STORED)
def test_repeated_operators_of_a_layer_take_less_space_than_the_first(precision):
    def size(**settings):
        cell = LayerCost("cell", 9_000, 2_020, 2_020, (0,), 1, **settings)
        return NetworkCost((cell,), (10, 20), (0,), (1,)).size_bytes(precision)

    assert size(operators=30) - size() == 29 * precision.storage.repeated
    assert size() - size(in_place=True) == precision.storage.weighted > precision.storage.repeated


@pytest.mark.parametrize("precision", STORED)
def test_the_size_of_an_operator_depends_on_its_kind(precision):
    def size(*kinds, times=1):
        operations = tuple(Operation(kind, 1, 2, 2, times=times) for kind in kinds)
        only = LayerCost("only", 0, 0, 0, (0,), 1, operations=operations, in_place=not operations)
        return NetworkCost((only,), (2, 2), (0,), (1,)).size_bytes(precision)

    storage, kinds = precision.storage, OperatorKind
    assert size(kinds.CONVOLUTION, kinds.ACTIVATION) - size() == storage.weighted + storage.plain
    assert size(kinds.FLATTEN) - size() == storage.flatten
    assert size(kinds.ADD, times=9) - size() == 9 * storage.plain
    assert size(kinds.PRODUCT, times=9) - size() == storage.plain  # for nine heads
