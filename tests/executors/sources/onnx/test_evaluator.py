"""The corrected reference evaluator, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from executors.sources.onnx.evaluator import evaluator
from executors.sources.onnx.loading import load_onnx
from tests.support.onnx_files import Array, model, node, normal, outputs_of, written

TOKENS = 5
NORM = {
    "scale": normal(6),
    "shift": normal(6),
    "mean": normal(6),
    "variance": np.abs(normal(6)) + np.float32(0.1),
    "k": normal(6, 2, 3, 2),
    "offsets": normal(6),
}

CASES: dict[str, tuple[int, str, str, dict[str, Any]]] = {
    "batch norm, version 9": (9, "BatchNormalization", "x scale shift mean variance", {"epsilon": 0.01}),
    "batch norm, version 13": (13, "BatchNormalization", "x scale shift mean variance", {}),
    "softmax, version 11": (11, "Softmax", "x", {"axis": 1}),
    "softmax, version 12, default": (12, "Softmax", "x", {}),
    "softmax, version 11, counted from the end": (11, "Softmax", "x", {"axis": -2}),
    "softmax, version 13": (13, "Softmax", "x", {"axis": 1}),
    "log softmax, version 11": (11, "LogSoftmax", "x", {"axis": 2}),
    "LRN": (13, "LRN", "x", {"size": 3, "alpha": 1.0}),
    "LRN of size 5": (13, "LRN", "x", {"size": 5, "alpha": 0.5, "beta": 0.5, "bias": 2.0}),
    "L1 norm": (13, "LpNormalization", "x", {"p": 1, "axis": 1}),
    "L2 norm": (13, "LpNormalization", "x", {"axis": -1}),
    "means": (17, "AveragePool", "x", {"kernel_shape": [3, 2]}),
    "means, rounded up": (
        19, "AveragePool", "x", {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1},
    ),
    "means, rounded up, padding counted": (
        19, "AveragePool", "x",
        {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 1, 1], "ceil_mode": 1,
         "count_include_pad": 1},
    ),
    "means, padding counted": (
        11, "AveragePool", "x", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "means, padded below": (
        17, "AveragePool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    "transposed": (17, "ConvTranspose", "x k", {"strides": [2, 3]}),
    "transposed, in groups": (
        17, "ConvTranspose", "x k offsets",
        {"group": 3, "strides": [2, 2], "dilations": [2, 1], "pads": [1, 0, 2, 1], "output_padding": [1, 0]},
    ),
    "transposed to a size": (17, "ConvTranspose", "x k", {"strides": [2, 2], "output_shape": [12, 15]}),
    "transposed to a larger size": (
        17, "ConvTranspose", "x k", {"strides": [2, 2], "output_shape": [16, 17], "auto_pad": "SAME_UPPER"},
    ),
    "transposed, padded above": (
        17, "ConvTranspose", "x k", {"strides": [2, 1], "auto_pad": "SAME_UPPER"},
    ),
    "maxima, padded below": (
        17, "MaxPool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    "maxima, rounded up": (
        17, "MaxPool", "x", {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1},
    ),
    "maxima, padded and rounded up": (
        17, "MaxPool", "x", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_onnx_runtime(tmp_path: Path, case: str) -> None:
    opset, kind, inputs, attributes = CASES[case]
    weights = {name: NORM[name] for name in inputs.split()[1:]}
    nodes = [node(kind, inputs, "y", **attributes)]
    assert_equal_to_onnx_runtime(tmp_path, nodes, weights, normal(2, 6, 7, 8, scale=1.0, seed=1), opset)


@pytest.mark.parametrize("positions", [(7,), (7, 8), (3, 4, 5)], ids=str)
def test_maxima_over_all_positions_are_those_of_onnx_runtime(
    tmp_path: Path, positions: tuple[int, ...]
) -> None:
    x = normal(2, 6, *positions, scale=1.0)
    assert_equal_to_onnx_runtime(tmp_path, [node("GlobalMaxPool", "x", "y")], {}, x)


def test_negative_padding_is_that_of_onnx_runtime(tmp_path: Path) -> None:
    weights = {"p": np.array([0, -1, 2, -1, 0, 1, -2, 1]), "fill": np.float32(0.5)}
    assert_equal_to_onnx_runtime(tmp_path, [node("Pad", "x p fill", "y")], weights, normal(2, 6, 7, 8))


def test_indices_beyond_the_last_entry_are_an_error_as_in_onnx_runtime() -> None:
    indices = {"i": np.full((2, 1, 8), 6)}
    proto = model([node("GatherElements", "x i", "y", axis=1)], {"x": [2, 6, 8]}, indices)
    with pytest.raises(Exception, match="out of bounds"):
        evaluator(proto).run(None, {"x": normal(2, 6, 8)})


def assert_equal_to_onnx_runtime(
    tmp_path: Path, nodes: list[Any], weights: dict[str, Array], x: Array, opset: int = 17
) -> None:
    proto = model(nodes, {"x": list(x.shape)}, weights, opset=opset)
    (expected,) = outputs_of(written(tmp_path / "net.onnx", proto), {"x": x})
    (made,) = evaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [9, 11, 13])
def test_networks_with_batch_norms_of_early_versions_are_read(tmp_path: Path, opset: int) -> None:
    nodes = [
        node("Conv", "x kernel", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a scale shift mean variance", "b"),
        node("Relu", "b", "y"),
    ]
    weights = {"kernel": normal(6, 3, 3, 3), **NORM}
    file = written(tmp_path / "net.onnx", model(nodes, {"x": ["n", 3, 7, 8]}, weights, opset=opset))
    x = normal(3, 3, 7, 8, scale=1.0, seed=1)
    (expected,) = outputs_of(file, {"x": x})
    made = np.asarray(load_onnx(file)(np.moveaxis(x, 1, -1), training=False))
    np.testing.assert_allclose(np.moveaxis(made, -1, 1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(TOKENS,), (1, TOKENS), (2, 1, 1, TOKENS)], ids=str)
def test_a_causal_mask_is_applied_to_all_queries_beside_a_mask_that_is_equal_for_them(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    """ONNX Runtime takes only masks that are repeated for each query."""
    mask = np.random.default_rng(0).uniform(size=shape) > 0.3
    mask[..., 0] = True
    feed = {name: normal(2, 3, TOKENS, 4, seed=ord(name)) for name in "qkv"}

    def proto(stored: Array) -> Any:
        attention = node("Attention", "q k v mask", "y", is_causal=1)
        return model([attention], {name: [2, 3, TOKENS, 4] for name in "qkv"}, {"mask": stored}, opset=23)

    whole = np.broadcast_to(mask, (*mask.shape[:-2], TOKENS, TOKENS))
    (expected,) = outputs_of(written(tmp_path / "net.onnx", proto(whole)), feed)
    (made,) = evaluator(proto(mask)).run(None, feed)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
