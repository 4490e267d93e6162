"""Networks that ONNX Runtime has quantized are read as the float networks that they were."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType

from executors.sources.keras.source import KerasSource
from executors.sources.onnx.loading import OnnxNetwork, read_onnx
from mistify.errors import MistifyError
from tests.executors.sources.onnx.test_transformers import GELU, NUMBERS
from tests.support.onnx_files import Array, model, node, normal, outputs_of, quantized, written

SHAPE = (3, 12, 12)


def images(count: int, scale: float = 1.0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0, scale, (count, *SHAPE)).astype(np.float32)


def residual(path: Path, output: str = "y") -> Path:
    """Write a network with a ReLU after a convolution and after a sum, and a ReLU6 that is often at 6.

    Args:
        output: "y" for probabilities, "k" for scores.
    """
    nodes = [
        *(node("Conv", "x first.weight", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b")),
        *(node("Conv", "b second.weight", "c", pads=[1, 1, 1, 1]), node("Clip", "c zero six", "d")),
        *(node("Conv", "d third.weight", "e", pads=[1, 1, 1, 1]), node("Add", "e b", "f")),
        *(node("Relu", "f", "g"), node("MaxPool", "g", "h", kernel_shape=[2, 2], strides=[2, 2])),
        *(node("GlobalAveragePool", "h", "i"), node("Flatten", "i", "j"), node("Gemm", "j fc.weight", "k")),
        *([node("Softmax", "k", "y")] if output == "y" else []),
    ]
    weights = {
        "first.weight": normal(8, 3, 3, 3), "second.weight": normal(8, 8, 3, 3, scale=1.0),
        "third.weight": normal(8, 8, 3, 3), "fc.weight": normal(8, 4, scale=0.5),
        "zero": np.float32(0), "six": np.float32(6),
    }  # fmt: skip
    return written(path, model(nodes, {"x": ["n", *SHAPE]}, weights, outputs=[output]))


def read(path: Path, **options: Any) -> OnnxNetwork:
    residual(path / "float.onnx")
    rows = ({"x": row[None]} for row in images(60))
    return read_onnx(quantized(path / "float.onnx", path / "net.onnx", rows, **options))


def activations(network: keras.Model) -> list[float | None]:
    """Return the maximum of each ReLU."""
    return [layer.max_value for layer in network.layers if isinstance(layer, keras.layers.ReLU)]


def outputs(network: keras.Model, inputs: Array) -> Array:
    return np.asarray(network(np.moveaxis(inputs, 1, -1)))


OPTIONS: Mapping[str, dict[str, Any]] = {
    "by default": {},
    "by channel": {"per_channel": True},
    "unsigned": {"activation_type": QuantType.QUInt8},
    "symmetric": {"extra_options": {"ActivationSymmetric": True}},
    "activations kept": {"extra_options": {"QDQKeepRemovableActivations": True}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_removed_activations_are_restored(tmp_path: Path, name: str) -> None:
    network = read(tmp_path, **OPTIONS[name])
    kinds = [each.op_type for each in onnx.load(tmp_path / "net.onnx").graph.node]
    removed = name not in ("symmetric", "activations kept")
    assert (kinds.count("Relu"), kinds.count("Clip")) == ((0, 0) if removed else (2, 1))
    assert activations(network.model) == [None, 6.0, None]
    inputs = images(20, seed=1)
    (expected,) = outputs_of(tmp_path / "float.onnx", {"x": inputs})
    np.testing.assert_allclose(outputs(network.model, inputs), expected, atol=0.03)


def test_ranges_are_those_of_the_file(tmp_path: Path) -> None:
    network = read(tmp_path)
    assert {layer.name for layer in network.model.layers} >= network.ranges.keys()
    proto = onnx.load(tmp_path / "net.onnx")
    stored = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    by_input = {node.input[0]: node for node in proto.graph.node if node.op_type == "QuantizeLinear"}
    scale, zero = (stored[name].item() for name in by_input["x"].input[1:])
    assert network.ranges["x"] == pytest.approx(((-128 - zero) * scale, (127 - zero) * scale))
    assert network.ranges["x"] == pytest.approx((0, 1), abs=0.01)
    relu6 = next(layer for layer in network.model.layers if getattr(layer, "max_value", None) == 6)
    assert network.ranges[relu6.name] == pytest.approx((0, 6))
    assert network.ranges["y"][0] == 0


def test_a_written_source_keeps_its_ranges(tmp_path: Path) -> None:
    source = KerasSource(*read(tmp_path))
    source.write(tmp_path / "source.keras")
    assert KerasSource.read(tmp_path / "source.keras").ranges == source.ranges
    assert KerasSource.read(tmp_path / "source.keras").interface == source.interface
    KerasSource(source.network).write(tmp_path / "other.keras")
    assert KerasSource.read(tmp_path / "other.keras").ranges == {}


def simulated(change: Callable[[list[onnx.NodeProto]], None] = lambda nodes: None) -> onnx.ModelProto:
    """Return a convolution whose input, weights and result are quantized, as by such training."""
    nodes = [
        *(node("QuantizeLinear", "x step zero", "xq"), node("DequantizeLinear", "xq step zero", "xd")),
        *(node("QuantizeLinear", "k steps zeros", "kq", axis=0),),
        *(node("DequantizeLinear", "kq steps zeros", "kd", axis=0), node("Conv", "xd kd", "c")),
        *(node("QuantizeLinear", "c step least", "cq"), node("DequantizeLinear", "cq step least", "y")),
    ]
    change(nodes)
    steps = np.linspace(0.005, 0.01, 8).astype(np.float32)
    weights = {
        "step": np.float32(0.02), "zero": np.int8(0), "least": np.int8(-128),
        "k": normal(8, 3, 3, 3), "steps": steps, "zeros": np.zeros(8, np.int8),
    }  # fmt: skip
    return model(nodes, {"x": ["n", *SHAPE]}, weights)


def test_weights_are_rounded_as_in_training(tmp_path: Path) -> None:
    network, _, ranges = read_onnx(written(tmp_path / "net.onnx", simulated()))
    (kernel,) = next(each for each in network.layers if isinstance(each, keras.layers.Conv2D)).get_weights()
    steps = np.linspace(0.005, 0.01, 8).astype(np.float32)
    rounded = np.round(normal(8, 3, 3, 3).transpose(2, 3, 1, 0) / steps).clip(-128, 127) * steps
    np.testing.assert_allclose(kernel, rounded, atol=1e-6)
    assert ranges["x"] == pytest.approx((-2.56, 2.54))
    assert ranges["y"] == pytest.approx((0, 5.1))


def test_several_readers_of_a_restored_activation_share_it(tmp_path: Path) -> None:
    def change(nodes: list[onnx.NodeProto]) -> None:
        nodes[-1] = node("DequantizeLinear", "cq step least", "d")
        nodes.append(node("DequantizeLinear", "cq step least", "e"))
        nodes.append(node("Concat", "d e", "y", axis=1))

    path, inputs = written(tmp_path / "net.onnx", simulated(change)), images(4, 2.0)
    network = read_onnx(path).model
    assert activations(network) == [None]
    (expected,) = outputs_of(path, {"x": inputs})
    np.testing.assert_allclose(np.moveaxis(outputs(network, inputs), -1, 1), expected, atol=0.15)


@pytest.mark.parametrize("constants", [False, True])
def test_nothing_is_restored_where_nothing_is_negative(tmp_path: Path, constants: bool) -> None:
    """The input, its shapes, probabilities and a GELU's `1 + erf(x)` begin at zero without a ReLU."""
    limits = {"step": np.float32(0.02), "least": np.uint8(0)}
    pair = "{0} step least", "{0}_q", "{0}_q step least", "{0}_d"
    nodes = []
    for kind, inputs, made in (
        *(("", "", "x"), ("Flatten", "x_d", "f"), ("Gemm", "f w", "g")),
        *(("Erf", "g", "e"), ("Add", "e one", "a"), ("Softmax", "a_d", "s"), ("Mul", "s_d a_d", "m")),
    ):
        if kind:
            nodes.append(node(kind, inputs, made))
        if made not in ("g", "e"):
            q, made_q, d, made_d = (each.format(made) for each in pair)
            nodes += [node("QuantizeLinear", q, made_q), node("DequantizeLinear", d, made_d)]
    nodes.append(node("Identity", "m_d", "y"))
    weights = {"w": normal(432, 5), "one": np.float32(1), **limits}
    if constants:  # as PyTorch's exporter writes them
        made = [
            helper.make_node(
                "Constant", [], [name], value=numpy_helper.from_array(np.asarray(weights.pop(name)))
            )
            for name in limits
        ]
        nodes = [*made, *nodes]
    network, _, ranges = read_onnx(
        written(tmp_path / "net.onnx", model(nodes, {"x": ["n", *SHAPE]}, weights))
    )
    assert activations(network) == []
    assert ranges["x"] == pytest.approx((0, 5.1))


@pytest.mark.parametrize(
    ("quantized_by", "dequantized_by"),
    [
        ("step zero", "other zero"),
        ("step zero", "step least"),
        ("step least", "step"),
        ("three zeros", "other zero"),
        ("three zeros", "three ones"),
    ],
)
def test_a_tensor_is_dequantized_as_it_was_quantized(
    tmp_path: Path, quantized_by: str, dequantized_by: str
) -> None:
    nodes = [
        node("QuantizeLinear", f"x {quantized_by}", "q", axis=1),
        node("DequantizeLinear", f"q {dequantized_by}", "d", axis=1),
        node("Conv", "d k", "y"),
    ]
    weights = {
        "step": np.float32(0.02), "other": np.float32(0.04), "three": np.float32([0.02, 0.03, 0.04]),
        "zero": np.int8(0), "least": np.int8(-128), "zeros": np.zeros(3, np.int8),
        "ones": np.ones(3, np.int8), "k": normal(8, 3, 3, 3),
    }  # fmt: skip
    path = written(tmp_path / "net.onnx", model(nodes, {"x": ["n", *SHAPE]}, weights))
    with pytest.raises(MistifyError, match="node DequantizeLinear /DequantizeLinear_d, whose scale or zero"):
        read_onnx(path)


@pytest.mark.parametrize(
    ("quantized_by", "dequantized_by"),
    [("step zero", "step"), ("three zeros", "three"), ("step", "same zero")],
)
def test_equal_scales_and_zero_points_may_be_written_in_several_ways(
    tmp_path: Path, quantized_by: str, dequantized_by: str
) -> None:
    nodes = [
        node("QuantizeLinear", f"x {quantized_by}", "q", axis=1),
        node("DequantizeLinear", f"q {dequantized_by}", "d"),
        node("Conv", "d k", "y"),
    ]
    kind = np.uint8 if "zero" not in quantized_by else np.int8
    weights = {
        "step": np.float32(0.02), "same": np.float32([0.02]), "three": np.float32([0.02, 0.03, 0.04]),
        "zero": kind(0), "zeros": np.zeros(3, kind), "k": normal(8, 3, 3, 3),
    }  # fmt: skip
    path = written(tmp_path / "net.onnx", model(nodes, {"x": ["n", *SHAPE]}, weights))
    (expected,) = outputs_of(path, {"x": images(2)})
    made = np.moveaxis(outputs(read_onnx(path).model, images(2)), -1, 1)
    np.testing.assert_allclose(made, expected, atol=0.1)


def test_zero_points_may_be_left_out(tmp_path: Path) -> None:
    nodes = [
        *(node("Conv", "x k", "c"), node("QuantizeLinear", "c step", "q")),
        node("DequantizeLinear", "q step", "y"),
    ]
    weights = {"k": normal(8, 3, 3, 3), "step": np.float32(0.02)}
    network, _, ranges = read_onnx(
        written(tmp_path / "net.onnx", model(nodes, {"x": ["n", *SHAPE]}, weights))
    )
    assert activations(network) == [None]
    assert ranges["y"] == pytest.approx((0, 5.1))


@pytest.mark.parametrize("nodes", GELU.values(), ids=GELU)
def test_a_quantized_gelu_is_one_activation(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    first = [node("MatMul", "x first.weight", "p"), node("Add", "p first.bias", "a")]
    weights = {"first.weight": normal(5, 12), "first.bias": normal(12), **NUMBERS}
    source = written(tmp_path / "float.onnx", model([*first, *nodes], {"x": ["n", 6, 5]}, weights))
    rows = ({"x": normal(1, 6, 5, seed=seed)} for seed in range(30))
    path = quantized(source, tmp_path / "net.onnx", rows)
    network = read_onnx(path).model
    kinds = [layer.get_config().get("activation") for layer in network.layers]
    assert kinds.count("gelu") == 1
    assert not activations(network)
    (expected,) = outputs_of(path, {"x": normal(3, 6, 5)})
    np.testing.assert_allclose(np.asarray(network(normal(3, 6, 5))), expected, atol=0.02)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, 1e-40])
def test_scales_that_are_none_give_no_range(tmp_path: Path, scale: float) -> None:
    proto = simulated()
    for weight in proto.graph.initializer:
        if weight.name == "step":
            weight.CopyFrom(numpy_helper.from_array(np.float32(scale), "step"))
    assert read_onnx(written(tmp_path / "net.onnx", proto)).ranges == {}
