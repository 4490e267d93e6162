"""Networks that read the steps of a sequence as examples of the batch, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from executors.sources.onnx.loading import load_onnx
from executors.structure import analyse
from executors.structure.each_step import EachStep
from tests.support.onnx_files import Array, model, node, normal, outputs_of, written

FRAMES = 4
WEIGHTS = {
    "c.weight": normal(8, 3, 3, 3),
    "c.bias": normal(8),
    **{f"n.{name}": np.abs(normal(8, seed=seed)) + 0.1 for seed, name in enumerate(("s", "b", "m", "v"))},
    "slopes": normal(8, 1, 1),
    "f.weight": normal(5, 8 * 5 * 4),
    "l.w": normal(1, 24, 5),
    "l.r": normal(1, 24, 6),
    "frames": np.array([-1, 3, 9, 8]),
}
BODY = [
    node("Conv", "v c.weight c.bias", "d", pads=[1, 1, 1, 1]),
    node("BatchNormalization", "d n.s n.b n.m n.v", "e"),
    node("PRelu", "e slopes", "p"),
    node("Add", "p d", "q"),
    node("MaxPool", "q", "r", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    node("Flatten", "r", "f"),
    node("Gemm", "f f.weight", "g", transB=1),
    node("Relu", "g", "h"),
]


def check(tmp_path: Path, nodes: list[Any], weights: dict[str, Array]) -> keras.Model:
    """Check a network of videos of 4 images."""
    proto = model(nodes, {"x": ["n", FRAMES, 3, 9, 8]}, {**WEIGHTS, **weights})
    file = written(tmp_path / "net.onnx", proto)
    videos = normal(3, FRAMES, 3, 9, 8, scale=1.0)
    network = load_onnx(file)
    (expected,) = outputs_of(file, {"x": videos})
    np.testing.assert_allclose(np.asarray(network(videos)), expected, atol=1e-5)
    return network


@pytest.mark.parametrize("steps_first", [False, True])
def test_a_recurrent_layer_reads_what_a_convolutional_network_finds_in_each_image(
    tmp_path: Path, steps_first: bool
) -> None:
    if steps_first:
        before, after = [node("Transpose", "x", "u", perm=[1, 0, 2, 3, 4])], [node("Reshape", "h apart", "a")]
    else:
        before = [node("Identity", "x", "u")]
        after = [node("Reshape", "h apart", "k"), node("Transpose", "k", "a", perm=[1, 0, 2])]
    nodes = [
        *(*before, node("Reshape", "u frames", "v"), *BODY, *after),
        *(node("LSTM", "a l.w l.r", "- last", hidden_size=6), node("Squeeze", "last zero", "y")),
    ]
    apart = [FRAMES, -1, 5] if steps_first else [-1, FRAMES, 5]
    network = check(tmp_path, nodes, {"apart": np.array(apart), "zero": np.array([0])})
    assert any(isinstance(layer, EachStep) for layer in network.layers)
    assert {"c", "f"} <= analyse(network).widths.keys()


def test_results_for_all_images_are_averaged(tmp_path: Path) -> None:
    nodes = [
        *(node("Reshape", "x frames", "v"), *BODY[:3], node("GlobalAveragePool", "p", "m")),
        *(node("Reshape", "m apart", "a"), node("ReduceMean", "a", "y", axes=[1], keepdims=0)),
    ]
    network = check(tmp_path, nodes, {"apart": np.array([-1, FRAMES, 8])})
    assert analyse(network).widths == {}, "the channels are the output"


def test_several_axes_are_merged_with_the_batch(tmp_path: Path) -> None:
    nodes = [
        *(node("Reshape", "x rows", "v"), node("Conv", "v k", "a")),
        *(node("ReduceMean", "a", "b", axes=[1, 2]), node("Reshape", "b apart", "y")),
    ]
    weights = {"k": normal(2, 9, 3), "rows": np.array([-1, 9, 8]), "apart": np.array([-1, 12])}
    check(tmp_path, nodes, weights)
