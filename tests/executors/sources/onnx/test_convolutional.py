"""Operators of convolutional networks, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from executors.sources.onnx.loading import load_onnx
from executors.structure import analyse
from mistify.errors import MistifyError
from tests.support.onnx_files import Array, model, node, normal, outputs_of, written

#: Largest difference, relative to the largest output.
EQUAL = 1e-5

#: A convolution before and after, so that the input has channels and the network weights.
BODY = ("Conv", "x kernel bias", "a")


def check(path: Path, proto: Any, x: Array, last: tuple[int, ...] | None = None) -> Any:
    """Load a model, compare it with ONNX Runtime, and return it; `last` puts the output's channels first."""
    file = written(path / "net.onnx", proto)
    network = load_onnx(file)
    fed = np.moveaxis(x, 1, -1) if x.ndim > 2 else x
    made = np.asarray(network(fed, training=False))
    made = np.moveaxis(made, -1, 1) if made.ndim == x.ndim > 2 else made
    (expected,) = outputs_of(file, {"x": x})
    assert made.shape == expected.shape
    assert np.abs(made - expected).max() <= EQUAL * np.abs(expected).max()
    return network


def image_case(
    tmp_path: Path,
    nodes: list[Any],
    weights: dict[str, Array],
    size: tuple[int, int] = (9, 8),
    opset: int = 17,
) -> Any:
    """Check nodes that follow a convolution from 3 to 8 channels, from `a` to `y`."""
    weights = {"kernel": normal(8, 3, 3, 3), "bias": normal(8), **weights}
    proto = model([node(*BODY, pads=[1, 1, 1, 1]), *nodes], {"x": ["n", 3, *size]}, weights, opset=opset)
    return check(tmp_path, proto, normal(3, 3, *size, scale=1.0, seed=1))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "pads": [0, 0, 1, 1]},
        {"strides": [2, 1], "pads": [1, 0, 1, 0]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    ],
    ids=str,
)
def test_a_convolution(tmp_path: Path, options: dict[str, Any]) -> None:
    image_case(tmp_path, [node("Conv", "a k", "y", **options)], {"k": normal(6, 8, 3, 3)})


@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize("channels", [8, 16])
def test_a_grouped_convolution(tmp_path: Path, groups: int, channels: int) -> None:
    kernel = normal(channels, 8 // groups, 3, 3)
    options = {"group": groups, "strides": [2, 2], "pads": [1, 1, 1, 1]}
    image_case(tmp_path, [node("Conv", "a k b", "y", **options)], {"k": kernel, "b": normal(channels)})


@pytest.mark.parametrize(
    "options",
    [
        {"strides": [2, 2]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [1, 2], "pads": [0, 1, 1, 0]},
    ],
    ids=str,
)
def test_a_transposed_convolution(tmp_path: Path, options: dict[str, Any]) -> None:
    weights = {"k": normal(8, 5, 3, 3), "b": normal(5)}
    image_case(tmp_path, [node("ConvTranspose", "a k b", "y", **options)], weights)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 2], "strides": [1, 2], "auto_pad": "SAME_UPPER"},
    ],
    ids=str,
)
def test_pooling(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    image_case(tmp_path, [node(kind, "a", "y", **options)], {})


def test_a_mean_counts_padding_where_the_file_says_so(tmp_path: Path) -> None:
    options = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    image_case(tmp_path, [node("AveragePool", "a", "y", **options)], {})


def test_padding_never_is_a_maximum(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x kernel", "a"),
        node("MaxPool", "a", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    weights = {"kernel": -np.abs(normal(8, 3, 3, 3))}
    check(tmp_path, model(nodes, {"x": ["n", 3, 9, 9]}, weights), np.abs(normal(2, 3, 9, 9)))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Relu", {}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("Elu", {"alpha": 0.7}),
        ("Selu", {}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("HardSigmoid", {}),
        ("HardSigmoid", {"alpha": 1 / 6}),
        ("HardSwish", {}),
        ("Softplus", {}),
        ("Softmax", {"axis": 1}),
        ("LogSoftmax", {"axis": 1}),
        ("Abs", {}),
        ("Exp", {}),
        ("Neg", {}),
    ],
    ids=str,
)
def test_an_activation(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    image_case(tmp_path, [node(kind, "a", "y", **options)], {})


@pytest.mark.parametrize("bounds", [(0.0, 6.0), (-0.5, 0.5), (0.0, None), (None, 0.2)], ids=str)
def test_bounds(tmp_path: Path, bounds: tuple[float | None, float | None]) -> None:
    weights = {
        name: np.float32(bound)
        for name, bound in zip(("low", "high"), bounds, strict=True)
        if bound is not None
    }
    names = [name if name in weights else "-" for name in ("low", "high")]
    image_case(tmp_path, [node("Clip", f"a {' '.join(names)}", "y")], weights)


def test_slopes_of_channels(tmp_path: Path) -> None:
    image_case(tmp_path, [node("PRelu", "a slope", "y")], {"slope": normal(8, 1, 1)})


def test_batch_norm(tmp_path: Path) -> None:
    weights = {name: normal(8, seed=place) for place, name in enumerate("som")} | {
        "v": np.abs(normal(8)) + 0.5
    }
    image_case(tmp_path, [node("BatchNormalization", "a s o m v", "y", epsilon=1e-3)], weights)


def test_normalization_of_each_example(tmp_path: Path) -> None:
    image_case(
        tmp_path, [node("InstanceNormalization", "a s o", "y")], {"s": normal(8) + 1, "o": normal(8, seed=1)}
    )


@pytest.mark.parametrize("constant_first", [True, False])
@pytest.mark.parametrize("shape", [(), (8, 1, 1), (1, 8, 1, 1), (1, 1, 9, 8), (8, 9, 8)], ids=str)
@pytest.mark.parametrize("kind", ["Add", "Mul", "Sub", "Div", "Max"])
def test_arithmetic_with_a_constant(
    tmp_path: Path, kind: str, shape: tuple[int, ...], constant_first: bool
) -> None:
    inputs = "c r" if constant_first else "r c"
    divides = kind == "Div" and constant_first  # and a divisor must not be zero
    nodes = [node("Exp" if divides else "Relu", "a", "r"), node(kind, inputs, "y")]
    image_case(tmp_path, nodes, {"c": np.asarray(normal(*shape, scale=0.1) + 1, np.float32)})


@pytest.mark.parametrize("kind", ["Add", "Mul", "Sub", "Max", "Min", "Concat"])
def test_two_tensors_are_combined(tmp_path: Path, kind: str) -> None:
    options = {"axis": 1} if kind == "Concat" else {}
    image_case(tmp_path, [node("Relu", "a", "r"), node(kind, "a r", "y", **options)], {})


def test_channels_are_gated(tmp_path: Path) -> None:
    nodes = [
        node("GlobalAveragePool", "a", "g"),
        node("Conv", "g k", "c"),
        node("HardSigmoid", "c", "s"),
        node("Mul", "s a", "y"),
    ]
    image_case(tmp_path, nodes, {"k": normal(8, 8, 1, 1)})


def test_a_product_with_its_sigmoid_is_one_activation(tmp_path: Path) -> None:
    network = image_case(tmp_path, [node("Sigmoid", "a", "s"), node("Mul", "a s", "y")], {})
    activations = [layer.get_config()["activation"] for layer in network.layers if "Mul" in layer.name]
    assert activations == ["silu"]


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Flatten", "a", "f")],
        [node("Reshape", "a flat", "f")],
        [node("Transpose", "a", "t", perm=[0, 2, 3, 1]), node("Flatten", "t", "f")],
    ],
    ids=["Flatten", "Reshape", "Transpose"],
)
def test_a_flattened_image_is_read_in_its_own_order(tmp_path: Path, nodes: list[Any]) -> None:
    weights = {"flat": np.array([0, -1]), "w": normal(10, 576), "b": normal(10)}
    network = image_case(tmp_path, [*nodes, node("Gemm", "f w b", "y", transB=1)], weights)
    assert not any("Permute" in type(layer).__name__ for layer in network.layers)


def test_a_shape_is_computed_from_the_free_batch(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "a", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 rest", "target", axis=0),
        node("Reshape", "a target", "f"),
        node("MatMul", "f w", "y"),
    ]
    weights = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([576]), "w": normal(576, 4)}
    image_case(tmp_path, nodes, weights)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Pad", "a p", "y")],
        [node("Pad", "a p", "y", mode="reflect")],
        [node("Pad", "a p", "y", mode="edge")],
        [node("Pad", "a p v", "y")],
    ],
    ids=["zeros", "reflect", "edge", "value"],
)
def test_padding(tmp_path: Path, nodes: list[Any]) -> None:
    weights = {"p": np.array([0, 0, 1, 0, 0, 0, 1, 1]), "v": np.float32(0.5)}
    image_case(tmp_path, nodes, weights)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
        {"mode": "cubic"},
    ],
    ids=str,
)
@pytest.mark.parametrize("sizes", [(18, 16), (5, 11)])
def test_resizing(tmp_path: Path, options: dict[str, Any], sizes: tuple[int, int]) -> None:
    resize = node("Resize", "a - - to", "y", axes=[2, 3], **options)
    image_case(tmp_path, [resize], {"to": np.array(sizes)}, opset=18)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("kind", "opset"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
def test_resizing_of_early_versions(tmp_path: Path, kind: str, opset: int, mode: str) -> None:
    scales = np.float32([1, 1, 2, 1.5])
    if opset < 9:
        image_case(tmp_path, [node(kind, "a", "y", mode=mode, scales=scales.tolist())], {}, opset=opset)
    else:
        image_case(tmp_path, [node(kind, "a scales", "y", mode=mode)], {"scales": scales}, opset=opset)


def test_shrinking_of_early_versions(tmp_path: Path) -> None:
    scales = {"scales": np.float32([1, 1, 0.6, 0.5])}
    image_case(tmp_path, [node("Resize", "a scales", "y", mode="linear")], scales, opset=10)
    with pytest.raises(MistifyError, match="which runtimes compute differently"):
        image_case(tmp_path, [node("Resize", "a scales", "y", mode="nearest")], scales, opset=10)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("kind", "axes"),
    [
        ("ReduceMean", [2, 3]),
        ("ReduceMax", [1]),
        ("ReduceMean", [-1]),
        ("ReduceL1", [1]),
        ("ReduceL2", [1]),
        ("ReduceL2", [2, 3]),
        ("ReduceSumSquare", [-1]),
        ("ReduceLogSumExp", [1]),
    ],
)
def test_reduction(tmp_path: Path, kind: str, axes: list[int], keepdims: int) -> None:
    image_case(tmp_path, [node(kind, "a", "y", axes=axes, keepdims=keepdims)], {})


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Split", "a halves", "p q", axis=1), node("Concat", "q p", "y", axis=1)],
        [node("Slice", "a one four one", "y")],
        [node("Gather", "a picked", "y", axis=1)],
        [
            node("Reshape", "a grouped", "g"),
            node("Transpose", "g", "t", perm=[0, 2, 1, 3, 4]),
            node("Reshape", "t back", "y"),
        ],
        [node("DepthToSpace", "a", "y", blocksize=2)],
        [node("DepthToSpace", "a", "y", blocksize=2, mode="CRD")],
    ],
    ids=["split", "slice", "gather", "shuffle", "depth to space", "depth to space by rows"],
)
def test_channels_are_rearranged(tmp_path: Path, nodes: list[Any]) -> None:
    weights = {
        "halves": np.array([3, 5]),
        "one": np.array([1]),
        "four": np.array([4]),
        "picked": np.array([5, 0, 2]),
        "grouped": np.array([0, 2, 4, 9, 8]),
        "back": np.array([0, 8, 9, 8]),
    }
    image_case(tmp_path, nodes, weights)


def volume_case(tmp_path: Path, nodes: list[Any], weights: dict[str, Array]) -> Any:
    """Check nodes that follow a convolution of volumes from 2 to 4 channels, from `a` to `y`."""
    weights = {"kernel": normal(4, 2, 3, 3, 3), "bias": normal(4), **weights}
    first = node("Conv", "x kernel bias", "a", pads=[1] * 6)
    proto = model([first, *nodes], {"x": ["n", 2, 5, 7, 6]}, weights)
    return check(tmp_path, proto, normal(2, 2, 5, 7, 6, scale=1.0))


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]},
        {"kernel_shape": [1, 3, 2], "strides": [1, 2, 2], "pads": [0, 1, 1, 0, 1, 0]},
        {"kernel_shape": [3, 2, 1], "strides": [2, 2, 1], "ceil_mode": 1, "pads": [1, 0, 0, 1, 1, 0]},
        {"kernel_shape": [3, 3, 3], "strides": [2, 1, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 1, 1]},
    ],
    ids=str,
)
def test_pooling_of_volumes(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    volume_case(tmp_path, [node(kind, "a", "y", **options)], {})


def test_a_mean_of_volumes_counts_padding_where_the_file_says_so(tmp_path: Path) -> None:
    options = {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "pads": [1] * 6, "count_include_pad": 1}
    volume_case(tmp_path, [node("AveragePool", "a", "y", **options)], {})


@pytest.mark.parametrize("kind", ["GlobalMaxPool", "GlobalAveragePool"])
def test_pooling_over_all_positions_of_volumes(tmp_path: Path, kind: str) -> None:
    volume_case(tmp_path, [node(kind, "a", "p"), node("Flatten", "p", "y")], {})


def test_channels_of_pooled_volumes_can_be_cut(tmp_path: Path) -> None:
    nodes = [
        *(node("Relu", "a", "r"), node("MaxPool", "r", "p", kernel_shape=[2, 2, 2], strides=[2, 2, 2])),
        *(node("Conv", "p k", "c"), node("GlobalAveragePool", "c", "g"), node("Flatten", "g", "f")),
        node("Gemm", "f w", "y"),
    ]
    network = volume_case(tmp_path, nodes, {"k": normal(6, 4, 2, 2, 2), "w": normal(6, 3)})
    assert sorted(analyse(network).widths.values()) == [4, 6]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strides": [2, 2, 1], "pads": [1, 1, 1, 0, 1, 1], "output_padding": [1, 0, 0]},
        {"strides": [2, 1, 2], "group": 2},
        {"dilations": [1, 2, 1], "strides": [1, 2, 2]},
    ],
    ids=str,
)
def test_a_transposed_convolution_of_volumes(tmp_path: Path, options: dict[str, Any]) -> None:
    weights = {"k": normal(4, 3, 3, 2, 3), "b": normal(3 * options.get("group", 1))}
    bias = "" if "output_padding" in options else " b"
    volume_case(tmp_path, [node("ConvTranspose", f"a k{bias}", "y", **options)], weights)


def test_a_signal(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x k b", "a", strides=[2], pads=[2, 2]),
        node("Relu", "a", "r"),
        node("Conv", "r d", "m", group=8, pads=[1, 1]),
        node("MaxPool", "m", "y", kernel_shape=[2], strides=[2]),
    ]
    weights = {"k": normal(8, 2, 5), "b": normal(8), "d": normal(8, 1, 3)}
    check(tmp_path, model(nodes, {"x": ["n", 2, 20]}, weights), normal(3, 2, 20, scale=1.0))
