"""Options and combinations of operators that node tests do not cover, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from executors.sources.onnx.loading import load_onnx
from mistify.errors import ErrorCode, MistifyError
from tests.executors.sources.onnx.test_convolutional import check, image_case
from tests.support.onnx_files import Array, model, node, normal, outputs_of, written


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Identity", "t", "y")],
        [node("Softmax", "t", "y")],
        [node("Reshape", "t square", "y")],
        [node("Relu", "t", "r"), node("Gemm", "r w", "y")],
        [node("Add", "t f", "y")],
    ],
    ids=lambda nodes: nodes[-1].op_type,
)
def test_a_function_follows_a_flattened_image(tmp_path: Path, nodes: list[Any]) -> None:
    weights = {"square": np.array([0, 24, 24]), "w": normal(576, 4)}
    image_case(tmp_path, [node("Flatten", "a", "f"), node("Tanh", "f", "t"), *nodes], weights)


def test_axes_are_counted_from_the_end(tmp_path: Path) -> None:
    image_case(
        tmp_path, [node("Flatten", "a", "f", axis=-3), node("Gemm", "f w", "y")], {"w": normal(576, 4)}
    )


def refused(tmp_path: Path, nodes: list[Any], weights: dict[str, Array], text: str) -> None:
    """Check that nodes after a convolution, from `a` to `y`, are refused with a text."""
    with pytest.raises(MistifyError) as caught:
        image_case(tmp_path, nodes, weights)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert text in str(caught.value)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_a_layer_norm_over_several_axes(tmp_path: Path, axis: int, channels_last: bool) -> None:
    shape = {1: (8, 9, 8), 2: (9, 8), -1: (8,)}[axis]
    before, after = ("Relu", "Sigmoid") if channels_last else ("Transpose", "Transpose")
    options = {} if channels_last else {"perm": [0, 1, 2, 3]}
    nodes = [
        node(before, "a", "b", **options),
        node("LayerNormalization", "b s o", "c", axis=axis),
        node(after, "c", "y", **options),
    ]
    image_case(tmp_path, nodes, {"s": normal(*shape) + 1, "o": normal(*shape, seed=1)})


@pytest.mark.parametrize("shape", [(1,), (9, 8), (8, 9, 8)], ids=str)
def test_slopes_that_differ_along_other_axes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    image_case(tmp_path, [node("PRelu", "a slope", "y")], {"slope": normal(*shape)})


@pytest.mark.parametrize("bounds", [(0.0, -1.0), (0.3, 0.1)], ids=str)
def test_the_maximum_wins_over_the_minimum(tmp_path: Path, bounds: tuple[float, float]) -> None:
    weights = {name: np.float32(bound) for name, bound in zip(("low", "high"), bounds, strict=True)}
    nodes = [node("Clip", "a low high", "c"), node("Add", "c a", "y")]  # a constant output is no network
    image_case(tmp_path, nodes, weights)


@pytest.mark.parametrize(
    "options",
    [
        {"group": 2},
        {"group": 8, "strides": [2, 2]},
        {"group": 4, "strides": [2, 1], "pads": [1, 1, 1, 0], "output_padding": [1, 0]},
        {"dilations": [2, 3]},
        {"dilations": [2, 1], "strides": [2, 2], "pads": [2, 1, 2, 1]},
    ],
    ids=str,
)
def test_a_grouped_or_dilated_transposed_convolution(tmp_path: Path, options: dict[str, Any]) -> None:
    weights = {"k": normal(8, 3, 3, 3), "b": normal(3 * options.get("group", 1))}
    image_case(tmp_path, [node("ConvTranspose", "a k b", "y", **options)], weights)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_of_a_given_size(tmp_path: Path, mode: str) -> None:
    options = {"strides": [3, 3], "output_shape": [26, 22], "auto_pad": mode}
    image_case(tmp_path, [node("ConvTranspose", "a k", "y", **options)], {"k": normal(8, 2, 4, 4)})


@pytest.mark.parametrize("shape", [(8,), (2, 8, 4), (9, 8, 8)], ids=str)
def test_products_with_vectors_and_with_several_matrices(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pool = [node("ReduceMean", "a", "m", axes=[1]), node("Unsqueeze", "m one", "u")]
    size = "a" if shape[0] == 8 and len(shape) == 1 else "u"
    nodes = [*(pool if size == "u" else []), node("MatMul", f"{size} k", "y")]
    weights = {"k": normal(*shape), "one": np.array([1])}
    check_products(tmp_path, nodes, weights)


def check_products(tmp_path: Path, nodes: list[Any], weights: dict[str, Array]) -> None:
    """Check nodes after a convolution whose output is no image."""
    proto = model(
        [node("Conv", "x kernel", "a", pads=[1, 1, 1, 1]), *nodes],
        {"x": ["n", 3, 9, 8]},
        {"kernel": normal(8, 3, 3, 3), **weights},
    )
    file, x = written(tmp_path / "net.onnx", proto), normal(3, 3, 9, 8, scale=1.0)
    made = np.asarray(load_onnx(file)(np.moveaxis(x, 1, -1)))
    (expected,) = outputs_of(file, {"x": x})
    made = np.moveaxis(made, -1, 1) if made.ndim == 4 else made
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_a_matrix_of_indices_selects_entries(tmp_path: Path) -> None:
    nodes = [node("Gather", "a picked", "g", axis=1), node("ReduceMax", "g", "y", axes=[1], keepdims=0)]
    image_case(tmp_path, nodes, {"picked": np.array([[5, 0, 2], [1, -1, 7]])})


def test_the_border_is_repeated_more_than_once(tmp_path: Path) -> None:
    weights = {"p": np.array([0, 0, 3, 0, 0, 0, 1, 2])}
    image_case(tmp_path, [node("Pad", "a p", "y", mode="edge")], weights)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"mode": "cubic", "exclude_outside": 1}, (18, 5)),
        ({"mode": "nearest", "keep_aspect_ratio_policy": "not_larger"}, (27, 32)),
        ({"mode": "linear", "keep_aspect_ratio_policy": "not_smaller"}, (4, 6)),
    ],
    ids=str,
)
def test_options_of_resizing(tmp_path: Path, options: dict[str, Any], sizes: tuple[int, int]) -> None:
    resize = node("Resize", "a - - to", "y", axes=[2, 3], **options)
    image_case(tmp_path, [resize], {"to": np.array(sizes)}, opset=18)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_the_last_of_equal_extremes_is_found(tmp_path: Path, kind: str) -> None:
    nodes = [
        *(node("Round", "a", "r"), node("Abs", "r", "p")),
        node(kind, "p", "i", axis=1, select_last_index=1),
        node("Cast", "i", "y", to=TensorProto.FLOAT),
    ]
    image_case(tmp_path, nodes, {})


@pytest.mark.parametrize("divisor", [3, -4])
def test_quotients_of_integers_are_rounded_towards_zero(tmp_path: Path, divisor: int) -> None:
    nodes = [
        node("Mul", "a ten", "t"),
        *(node("Cast", "t", "i", to=TensorProto.INT32), node("Div", "i d", "q")),
        node("Cast", "q", "y", to=TensorProto.FLOAT),
    ]
    image_case(tmp_path, nodes, {"ten": np.float32(10), "d": np.int32(divisor)})


def test_a_logarithm_is_compared_where_it_is_defined(tmp_path: Path) -> None:
    nodes = [node("Conv", "x kernel", "c"), node("Log", "c", "y")]
    proto = model(nodes, {"x": ["n", 3, 9, 8]}, {"kernel": np.abs(normal(8, 3, 3, 3))})
    check(tmp_path, proto, np.abs(normal(3, 3, 9, 8)) + np.float32(0.1))


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            [node("MaxPool", "a", "p places", kernel_shape=[2, 2]), node("Cast", "places", "y", to=1)],
            "returns 'places' as output 2",
        ),
        ([node("Slice", "a nine nine two", "y")], "makes a tensor without entries"),
        ([node("Trilu", "a", "y")], "node Trilu /Trilu_y, which depends on the network's input"),
        (
            [
                node("Cast", "a", "b", to=TensorProto.UINT8),
                node("Add", "b b", "c"),
                node("Cast", "c", "y", to=1),
            ],
            "node Add /Add_c, which computes with integers that may wrap around",
        ),
        (
            [
                node("Cast", "a", "b", to=TensorProto.INT32),
                node("Pow", "b two", "c"),
                node("Cast", "c", "y", to=1),
            ],
            "raises integers to a power",
        ),
        (
            [
                node("Cast", "a", "b", to=TensorProto.UINT32),
                node("Sub", "b b", "c"),
                node("Cast", "c", "y", to=1),
            ],
            "node Sub /Sub_c, which computes with integers that may wrap around",
        ),
        (
            [
                node("Cast", "a", "b", to=TensorProto.INT64),
                node("Greater", "b large", "c"),
                node("Where", "c a a", "y"),
            ],
            "has a constant of integers that need more than 32 bits",
        ),
        ([node("Cast", "a", "b", to=TensorProto.INT4), node("Cast", "b", "y", to=1)], "casts to INT4"),
        ([node("Dropout", "a rate yes", "y")], "is in training mode"),
        ([node("MaxPool", "a", "y", kernel_shape=[2, 2], dilations=[2, 2])], "by dilations"),
        ([node("Resize", "a - scales", "y")], "resizes the channels"),
        (
            [node("Resize", "a - halves", "y", coordinate_transformation_mode="align_corners")],
            "aligns corners by scales",
        ),
        (
            [node("Resize", "a half halves", "y", coordinate_transformation_mode="tf_crop_and_resize")],
            "crops the channels",
        ),
        ([node("MatMul", "a differ", "y")], "multiplies examples of a batch by different constants"),
    ],
    ids=lambda value: "" if isinstance(value, list) else value,
)
def test_what_is_not_supported_is_named(tmp_path: Path, nodes: list[Any], text: str) -> None:
    weights = {
        "nine": np.array([9]), "two": np.array([2]),
        "large": np.int64(2**40), "rate": np.float32(0.5), "yes": np.array(True),
        "differ": normal(3, 1, 8, 2),
        "scales": np.array([1, 2, 1, 1], np.float32), "halves": np.array([1, 1, 0.5, 0.5], np.float32),
        "half": np.array([0, 0, 0, 0, 1, 0.5, 1, 1], np.float32),
    }  # fmt: skip
    refused(tmp_path, nodes, weights, text)


def test_inputs_of_other_types_are_named(tmp_path: Path) -> None:
    nodes = [node("Cast", "x", "f", to=TensorProto.FLOAT), node("Conv", "f k", "y")]
    weights = {"k": normal(8, 3, 3, 3)}
    for kind, shape, text in (
        (TensorProto.STRING, ["n", 3, 9, 9], "type STRING; expected a batch of entries"),
        (
            TensorProto.FLOAT,
            ["n", 3, 0, 9],
            "shape ['n', 3, 0, 9] and type FLOAT; expected a batch of entries",
        ),
    ):
        proto = model(nodes, {"x": shape}, weights, kind=kind)
        with pytest.raises(MistifyError, match=r"an input 'x'") as caught:
            load_onnx(written(tmp_path / "net.onnx", proto))
        assert text in str(caught.value)


@pytest.mark.parametrize(
    "kind", [TensorProto.INT16, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64]
)
def test_integers_of_other_sizes_are_read(tmp_path: Path, kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [
        *(node("Div", "x three", "q"), node("Greater", "x q", "g"), node("Where", "g x q", "w")),
        *(node("Cast", "w", "f", to=TensorProto.FLOAT), node("Conv", "f k", "y")),
    ]
    weights = {"k": normal(8, 3, 3, 3), "three": np.array(3, dtype)}
    proto = model(nodes, {"x": ["n", 3, 9, 9]}, weights, kind=kind)
    file = written(tmp_path / "net.onnx", proto)
    x = np.random.default_rng(0).integers(0, 30_000, (3, 3, 9, 9)).astype(dtype)
    made = np.asarray(load_onnx(file)(x.astype(np.int32)))
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(made, expected, atol=1e-6 * np.abs(expected).max())


def test_a_mask_of_inference_keeps_all_entries(tmp_path: Path) -> None:
    image_case(
        tmp_path, [node("Dropout", "a", "d mask"), node("Where", "mask d zero", "y")], {"zero": np.float32(0)}
    )


@pytest.mark.parametrize("amounts", [(2, 1), (20, 9)], ids=str)
def test_a_tensor_goes_on_around_itself(tmp_path: Path, amounts: tuple[int, int]) -> None:
    before, after = amounts
    weights = {"p": np.array([0, 0, before, 1, 0, 0, after, 0])}
    image_case(tmp_path, [node("Pad", "a p", "y", mode="wrap")], weights, opset=19)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_computed_matrix_is_added_to_a_product(tmp_path: Path, factor: float) -> None:
    nodes = [
        node("Flatten", "a", "f"),
        node("Gemm", "f v", "m"),
        node("Gemm", "f w m", "y", alpha=2.0, beta=factor),
    ]
    image_case(tmp_path, nodes, {"w": normal(576, 4), "v": normal(576, 4, seed=1)})


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(4, 6), (18, 5)])
@pytest.mark.parametrize("inside", [0, 1])
def test_resizing_with_antialiasing(tmp_path: Path, sizes: tuple[int, int], mode: str, inside: int) -> None:
    options = {"antialias": 1, "mode": mode, "exclude_outside": inside}
    by_reference(tmp_path, [node("Resize", "a - - to", "y", axes=[2, 3], **options)], {"to": np.array(sizes)})


@pytest.mark.parametrize("filling", [0.0, 3.5])
def test_a_region_is_cropped_and_resized(tmp_path: Path, filling: float) -> None:
    coordinates = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": filling}
    weights = {"to": np.array([5, 7]), "region": np.array([0.2, -0.1, 1.3, 0.7], np.float32)}
    by_reference(
        tmp_path, [node("Resize", "a region - to", "y", axes=[2, 3], mode="linear", **coordinates)], weights
    )


def by_reference(tmp_path: Path, nodes: list[Any], weights: dict[str, Array]) -> None:
    """Check nodes that follow a convolution against ONNX's reference, where ONNX Runtime differs from it."""
    weights = {"kernel": normal(8, 3, 3, 3), **weights}
    proto = model([node("Conv", "x kernel", "a"), *nodes], {"x": ["n", 3, 11, 10]}, weights, opset=18)
    x = normal(3, 3, 11, 10, scale=1.0)
    made = np.asarray(load_onnx(written(tmp_path / "net.onnx", proto))(np.moveaxis(x, 1, -1)))
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(np.moveaxis(made, -1, 1), expected, atol=1e-5)
