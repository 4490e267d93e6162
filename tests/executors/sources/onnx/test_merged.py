"""Tensors in which the batch is merged with attention heads or positions, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from executors.sources.onnx.loading import load_onnx
from mistify.errors import MistifyError
from tests.executors.sources.onnx.test_transformers import CHANNELS, HEADS, TOKENS, token_case
from tests.support.onnx_files import model, node, normal, written

WIDTH = CHANNELS // HEADS
SHAPES = {
    "split": np.array([TOKENS, -1, WIDTH]),
    "apart": np.array([-1, HEADS, TOKENS, WIDTH]),
    "flat": np.array([-1, CHANNELS]),
    "whole": np.array([TOKENS, -1, CHANNELS]),
    "fixed": np.array([TOKENS, HEADS, WIDTH]),
}


def test_heads_are_merged_with_the_batch_and_positions_for_a_product(tmp_path: Path) -> None:
    """As in PyTorch's `MultiheadAttention`, whose first axis are positions."""
    nodes = [
        node("Transpose", "a", "t", perm=[1, 0, 2]),
        node("Reshape", "t split", "m"),
        node("Transpose", "m", "q", perm=[1, 0, 2]),  # [n * heads, tokens, width]
        node("Mul", "q factor", "scaled"),
        node("Add", "scaled places", "placed"),
        node("Transpose", "q", "k", perm=[0, 2, 1]),
        node("MatMul", "placed k", "products"),
        node("Softmax", "products", "shares", axis=2),
        node("MatMul", "shares q", "mixed"),
        node("Reshape", "mixed apart", "h"),
        node("Transpose", "h", "u", perm=[2, 0, 1, 3]),
        node("Reshape", "u flat", "f"),  # [tokens * n, channels]
        node("Gemm", "f out.weight out.bias", "g", transB=1),
        node("Tanh", "g", "e"),
        node("Reshape", "e whole", "w"),
        node("Transpose", "w", "y", perm=[1, 0, 2]),
    ]
    weights = {
        "factor": np.float32(0.5),
        "places": normal(1, TOKENS, WIDTH),
        "out.weight": normal(7, CHANNELS),
        "out.bias": normal(7),
        **SHAPES,
        "whole": np.array([TOKENS, -1, 7]),
    }
    network = token_case(tmp_path, nodes, weights)
    assert "out" in {layer.name for layer in network.layers}


def test_sizes_of_a_merged_axis_are_multiples_of_the_batch_size(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", "a parts", "m"),  # [n * tokens, heads, width]
        node("Shape", "m", "s"),
        node("Slice", "s zero first", "many"),
        node("Concat", "many open", "target", axis=0),
        node("Reshape", "m target", "flat_"),  # [n * tokens, channels]
        node("Relu", "flat_", "r"),
        node("Reshape", "r back", "y"),
    ]
    weights = {
        "parts": np.array([-1, HEADS, WIDTH]),
        "open": np.array([CHANNELS]),
        "back": np.array([-1, TOKENS, CHANNELS]),
        "zero": np.array([0]),
        "first": np.array([1]),
    }
    token_case(tmp_path, nodes, weights)


def test_entries_are_selected_beside_a_merged_axis(tmp_path: Path) -> None:
    """As in attention within windows, which are merged with the batch."""
    nodes = [
        node("Reshape", "a windows", "w"),  # [n * 3, 2, 3, width]
        node("Transpose", "w", "t", perm=[2, 0, 1, 3]),
        node("Gather", "t first", "q", axis=0),
        node("Gather", "t last", "k", axis=0),
        node("Split", "t", "s1 s2", axis=2),
        node("Gather", "s2 first", "g", axis=0),
        node("Concat", "q k g", "c", axis=1),
        node("Reshape", "c back", "y"),
    ]
    weights = {
        "windows": np.array([-1, 2, HEADS, WIDTH]),
        "first": np.int64(0),
        "last": np.int64(-1),
        "back": np.array([-1, 3 * 5 * WIDTH]),
    }
    token_case(tmp_path, nodes, weights)


def test_axes_beside_a_merged_one_are_reduced_cut_and_dropped(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", "a windows", "w"),  # [n * 3, 2, heads, width]
        node("Transpose", "w", "t", perm=[1, 0, 2, 3]),
        node("ReduceMean", "t", "m", axes=[0], keepdims=1),
        node("Squeeze", "m axis", "q"),  # [n * 3, heads, width]
        node("Slice", "q zero two one", "c"),
        node("ReduceSum", "c two", "u", keepdims=0),  # [n * 3, 2]
        node("Reshape", "u back", "y"),
    ]
    weights = {
        "windows": np.array([-1, 2, HEADS, WIDTH]),
        "axis": np.array([0]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "back": np.array([-1, 6]),
    }
    token_case(tmp_path, nodes, weights)


def test_a_size_is_left_open_beside_a_multiple_of_the_batch_size(tmp_path: Path) -> None:
    nodes = [
        *(node("Shape", "a", "s"), node("Gather", "s zero", "n"), node("Mul", "n tokens", "many")),
        node("Concat", "many heads_open", "target", axis=0),
        node("Reshape", "a target", "m"),  # [n * tokens, heads, width]
        node("Tanh", "m", "e"),
        node("Reshape", "e back", "y"),
    ]
    weights = {
        "zero": np.array([0]),
        "tokens": np.array([TOKENS]),
        "heads_open": np.array([HEADS, -1]),
        "back": np.array([-1, TOKENS, CHANNELS]),
    }
    token_case(tmp_path, nodes, weights)


def view_of(order: list[int], sizes: tuple[int, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Return the nodes of a view with strides, as PyTorch writes them, from `a` to `v`, with its axes in this
    order."""
    places = np.arange(TOKENS * CHANNELS).reshape(sizes).transpose(order)
    nodes = [
        node("Reshape", "a open", "flat"),
        *(node("Shape", "a", "s"), node("Gather", "s none", "n")),
        node("Range", "none n each", "counted"),
        node("Mul", "counted entries", "starts"),
        node("Reshape", "starts column", "first"),
        node("Add", "first places", "indices"),
        node("Gather", "flat indices", "v"),
    ]
    weights = {
        "open": np.array([-1]),
        "none": np.int64(0),
        "each": np.int64(1),
        "entries": np.int64(places.size),
        "column": np.array([-1, *[1] * places.ndim]),
        "places": places[None],
    }
    return nodes, weights


@pytest.mark.parametrize(
    ("order", "sizes"), [([0, 1], (TOKENS, CHANNELS)), ([2, 0, 1], (TOKENS, HEADS, WIDTH)), ([1, 0], (8, 9))]
)
def test_a_view_of_all_entries_is_a_reshape_and_a_transposition(
    tmp_path: Path, order: list[int], sizes: tuple[int, ...]
) -> None:
    nodes, weights = view_of(order, sizes)
    token_case(tmp_path, [*nodes, node("Tanh", "v", "y")], weights)


def test_a_view_that_repeats_entries_is_refused(tmp_path: Path) -> None:
    nodes, weights = view_of([0, 1], (TOKENS, CHANNELS))
    weights["places"] = np.minimum(weights["places"], 5)
    proto = model([node("Relu", "x", "a"), *nodes], {"x": ["n", TOKENS, CHANNELS]}, weights, outputs=["v"])
    with pytest.raises(MistifyError, match=r"node Gather .*repeats or omits entries"):
        load_onnx(written(tmp_path / "net.onnx", proto))


@pytest.mark.parametrize(
    ("operator", "inputs", "options"),
    [
        ("Softmax", "m", {"axis": 0}),
        ("ReduceSum", "m", {}),
        ("Slice", "m place_ place_ place_", {}),
        ("Gather", "m place", {"axis": 0}),
        ("Add", "m each", {}),
        ("MatMul", "left m", {}),
        ("Reshape", "m other", {}),
    ],
)
def test_operators_that_combine_examples_are_refused(
    tmp_path: Path, operator: str, inputs: str, options: dict[str, int]
) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Reshape", "a flat", "m"),
        node(operator, inputs, "y", **options),
    ]
    weights = {
        **SHAPES,
        "each": normal(2 * TOKENS, 1),
        "left": normal(2 * TOKENS, 2 * TOKENS),
        "place": np.int64(0),
        "place_": np.array([0]),
        "other": np.array([CHANNELS, -1]),
    }
    proto = model(nodes, {"x": ["n", TOKENS, CHANNELS]}, weights, opset=13)
    with pytest.raises(MistifyError, match=f"node {operator} .*the batch"):
        load_onnx(written(tmp_path / "net.onnx", proto))


def test_a_batch_of_fixed_size_that_is_merged_has_to_be_free(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        node("Relu", "t", "r"),
        node("Reshape", "r fixed", "m"),
        node("Transpose", "m", "y", perm=[1, 0, 2]),
    ]
    proto = model(nodes, {"x": [1, TOKENS, CHANNELS]}, SHAPES, opset=13)
    with pytest.raises(
        MistifyError, match=r"needs a free batch size in the file.*a free batch size instead of 1"
    ):
        load_onnx(written(tmp_path / "net.onnx", proto))
