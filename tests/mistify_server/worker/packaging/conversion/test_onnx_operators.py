"""Networks of ONNX operators in LiteRT, and exported to ONNX again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from executors.sources.keras.flat import flatten
from executors.sources.onnx.loading import load_onnx
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.executors.sources.onnx.test_attention import projected
from tests.mistify_client.exporting.compared import difference
from tests.support.onnx_files import Array, model, node, normal, written

TOKENS, CHANNELS = 6, 12

_ATTENTION = [
    *projected(shared=3)[0],
    node("ReduceSum", "a last_axis", "total", keepdims=0),
    *(node("Greater", "total low", "there"), node("Unsqueeze", "there inner", "seen")),
]
_ATTENDED = [node("Transpose", "o", "t", perm=[0, 2, 1, 3]), node("Reshape", "t joined", "r")]
_VOLUME = node("Conv", "a volumes", "v", pads=[1] * 6)

#: Name -> input without the batch, and nodes from `a` to `r`, which a product follows.
NETWORKS: dict[str, tuple[tuple[int, ...], list[Any]]] = {
    "attention": (
        (TOKENS, CHANNELS),
        [*_ATTENTION, node("Attention", "q k v", "o", is_causal=1), *_ATTENDED],
    ),
    "masked attention": ((TOKENS, CHANNELS), [*_ATTENTION, node("Attention", "q k v seen", "o"), *_ATTENDED]),
    "softcap": ((TOKENS, CHANNELS), [*_ATTENTION, node("Attention", "q k v", "o", softcap=2.0), *_ATTENDED]),
    "attention without projections": (
        (TOKENS, CHANNELS),
        [node("Attention", "a a a causal", "r", q_num_heads=3, kv_num_heads=3)],
    ),
    "rotation": ((TOKENS, CHANNELS), [node("RotaryEmbedding", "a cosines sines ids", "r", num_heads=3)]),
    "rotation of pairs": (
        (TOKENS, CHANNELS),
        [node("RotaryEmbedding", "a cosines sines ids", "r", num_heads=3, interleaved=1)],
    ),
    "maxima of volumes": (
        (2, 4, 6, 5),
        [
            _VOLUME,
            node("MaxPool", "v", "r", kernel_shape=[2, 3, 3], strides=[2, 2, 2], pads=[0, 1, 1, 0, 1, 1]),
        ],
    ),
    "means of volumes": (
        (2, 4, 6, 5),
        [_VOLUME, node("AveragePool", "v", "r", kernel_shape=[3, 3, 3], strides=[2, 2, 1], pads=[1] * 6)],
    ),
    "means of all positions": ((2, 4, 6, 5), [_VOLUME, node("GlobalAveragePool", "v", "r")]),
    "strides over volumes": (
        (2, 4, 6, 6),
        [node("Conv", "a volumes", "r", strides=[2, 2, 2], pads=[1] * 6)],
    ),
    "transposed volumes": (
        (2, 4, 3, 3),
        [_VOLUME, node("ConvTranspose", "v back", "r", strides=[1, 2, 2], pads=[1] * 6)],
    ),
    "wrapped": ((TOKENS, CHANNELS), [node("Pad", "a pads", "r", mode="wrap")]),
    "diagonal": (
        (TOKENS, CHANNELS),
        [node("Einsum", "a a", "s", equation="btc,bsc->bts"), node("Einsum", "s", "r", equation="btt->bt")],
    ),
    "antialiased": (
        (3, 9, 10),
        [
            node("Conv", "a image", "v"),
            node("Resize", "v - - to", "r", axes=[2, 3], mode="linear", antialias=1),
        ],
    ),
    "kept entries": (
        (TOKENS, CHANNELS),
        [node("Dropout", "a", "d mask"), node("Where", "mask d zero", "r")],
    ),
}
WEIGHTS: dict[str, Array] = {
    **projected(shared=3)[1],
    "low": np.float32(-0.5), "zero": np.float32(0), "inner": np.array([1, 2]),
    "joined": np.array([0, TOKENS, CHANNELS]), "causal": np.tri(TOKENS, dtype=bool),
    "cosines": np.cos(normal(9, 2, scale=3.0)), "sines": np.sin(normal(9, 2, scale=3.0)),
    "ids": np.array([[3, 0, 1, 8, 5, 2]]), "volumes": normal(4, 2, 3, 3, 3), "back": normal(4, 3, 3, 3, 3),
    "last_axis": np.array([-1]), "w": normal(1, 3),
    "pads": np.array([0, 2, 1, 0, 1, 0]), "to": np.array([4, 4]), "image": normal(4, 3, 3, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_the_same_in_litert_and_as_an_export(tmp_path: Path, name: str) -> None:
    shape, nodes = NETWORKS[name][0], [*NETWORKS[name][1]]
    nodes += [node("Flatten", "r", "f"), node("ReduceMax", "f last_axis", "m"), node("MatMul", "m w", "z")]
    read = {each for one in nodes for each in one.input}
    weights = {each: array for each, array in WEIGHTS.items() if each in read}
    proto = model(nodes, {"a": ["n", *shape]}, weights, opset=23, outputs=("f", "z"))
    loaded = flatten(tmp_path / "net.onnx", load_onnx(written(tmp_path / "net.onnx", proto)))
    network = convert(loaded)
    (source,) = loaded.inputs
    rows = np.random.default_rng(0).normal(size=(3, *source.shape[1:])).astype(np.float32)
    made = Runner(network)({source.name: rows})
    for output, expected in zip(loaded.output_names, loaded(rows, training=False), strict=True):
        np.testing.assert_allclose(made[output], expected, atol=1e-5)
    assert difference(network) < 1e-5
