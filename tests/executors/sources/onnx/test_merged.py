"""Tensors in which the batch is merged with attention heads or positions, against ONNX Runtime."""

from pathlib import Path

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


@pytest.mark.parametrize(
    ("operator", "inputs", "options"),
    [
        ("Softmax", "m", {"axis": 0}),
        ("ReduceSum", "m", {}),
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
    with pytest.raises(MistifyError, match="needs a free batch size in the file"):
        load_onnx(written(tmp_path / "net.onnx", proto))
