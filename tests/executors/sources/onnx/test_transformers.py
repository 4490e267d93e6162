"""Operators of transformers, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto

from executors.sources.onnx.loading import load_onnx
from mistify.errors import MistifyError
from tests.support.onnx_files import Array, model, node, normal, outputs_of, written

TOKENS, CHANNELS, HEADS = 6, 12, 3

GELU = {
    "halved last": [
        node("Div", "a root", "d"),
        node("Erf", "d", "e"),
        node("Add", "e one", "s"),
        node("Mul", "a s", "m"),
        node("Mul", "m half", "y"),
    ],
    "halved first": [
        node("Mul", "a half", "h"),
        node("Div", "a root", "d"),
        node("Erf", "d", "e"),
        node("Add", "e one", "s"),
        node("Mul", "h s", "y"),
    ],
    "halved between": [
        node("Div", "a root", "d"),
        node("Erf", "d", "e"),
        node("Add", "e one", "s"),
        node("Mul", "s half", "m"),
        node("Mul", "a m", "y"),
    ],
}
NUMBERS = {
    "root": np.float32(2**0.5),
    "one": np.float32(1),
    "half": np.float32(0.5),
    "two": np.float32(2),
    "epsilon": np.float32(1e-5),
}

#: The number of examples as `n` [1], and the constants that its nodes read.
_EXAMPLE_COUNT = [node("Shape", "a", "s"), node("Slice", "s zero first", "n")]
_COUNT_CONSTANTS = {"zero": np.array([0]), "first": np.array([1])}


def token_case(tmp_path: Path, nodes: list[Any], weights: dict[str, Array], opset: int = 13) -> Any:
    """Check nodes that follow a product with a matrix, from `a` [n, tokens, channels] to `y`."""
    first = [node("MatMul", "x first.weight", "p"), node("Add", "p first.bias", "a")]
    weights = {"first.weight": normal(5, CHANNELS), "first.bias": normal(CHANNELS), **NUMBERS, **weights}
    path = written(
        tmp_path / "net.onnx", model([*first, *nodes], {"x": ["n", TOKENS, 5]}, weights, opset=opset)
    )
    network, x = load_onnx(path), normal(3, TOKENS, 5, scale=1.0)
    (expected,) = outputs_of(path, {"x": x})
    np.testing.assert_allclose(np.asarray(network(x)), expected, atol=1e-5 * np.abs(expected).max())
    return network


@pytest.mark.parametrize("nodes", GELU.values(), ids=GELU)
def test_a_divided_gelu_is_one_activation(tmp_path: Path, nodes: list[Any]) -> None:
    network = token_case(tmp_path, nodes, {})
    assert [layer.name for layer in network.layers[1:2]] == ["first"]
    assert [layer.get_config().get("activation") for layer in network.layers[2:3]] == ["gelu"]
    assert len(network.layers) == 4


def test_a_divided_layer_norm_is_one_layer(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMean", "a", "m", axes=[-1]),
        node("Sub", "a m", "c"),
        node("Pow", "c two", "q"),
        node("ReduceMean", "q", "v", axes=[-1]),
        node("Add", "v epsilon", "e"),
        node("Sqrt", "e", "r"),
        node("Div", "c r", "d"),
        node("Mul", "d norm.weight", "s"),
        node("Add", "s norm.bias", "y"),
    ]
    weights = {"norm.weight": normal(CHANNELS) + 1, "norm.bias": normal(CHANNELS, seed=1)}
    network = token_case(tmp_path, nodes, weights)
    assert [type(layer).__name__ for layer in network.layers[2:-1]] == ["LayerNormalization"]


def test_layer_norm(tmp_path: Path) -> None:
    weights = {"s": normal(CHANNELS) + 1, "b": normal(CHANNELS, seed=1)}
    token_case(tmp_path, [node("LayerNormalization", "a s b", "y", axis=-1)], weights, opset=17)


def test_root_mean_square_norm(tmp_path: Path) -> None:
    nodes = [
        node("Mul", "a a", "q"),
        node("ReduceMean", "q", "m", axes=[-1]),
        node("Add", "m epsilon", "e"),
        node("Sqrt", "e", "r"),
        node("Div", "a r", "d"),
        node("Mul", "d norm.weight", "y"),
    ]
    token_case(tmp_path, nodes, {"norm.weight": normal(CHANNELS) + 1})


@pytest.mark.parametrize(
    ("equation", "operands"),
    [
        ("btc,btd->bcd", "a a"),
        ("btc,bsc->bts", "a a"),
        ("btc , bsc -> bst", "a a"),
        ("...tc,...sc->...ts", "a a"),
        ("btc,bsd->btscd", "a a"),
        ("btc,bs->btc", "a rows"),
        ("btc,bt->bc", "a rows"),
        ("btc,btc->bct", "a a"),
        ("btc,cd->btd", "a matrix"),
        ("dc,btc->bdt", "square a"),
        ("btc,dc", "a square"),
        ("btc,tcd->bd", "a cube"),
        ("btc->bct", "a"),
        ("btc->bt", "a"),
        ("...c->...", "a"),
    ],
)
def test_einsum(tmp_path: Path, equation: str, operands: str) -> None:
    nodes = [
        node("ReduceMax", "a", "rows", axes=[-1], keepdims=0),
        node("Einsum", operands, "y", equation=equation),
    ]
    weights = {
        "matrix": normal(CHANNELS, 7),
        "square": normal(CHANNELS, CHANNELS, seed=1),
        "cube": normal(TOKENS, CHANNELS, 3),
    }
    token_case(tmp_path, nodes, weights)


@pytest.mark.parametrize(
    ("equation", "operands"),
    [("btt->bt", "m"), ("btt->b", "m"), ("btct->bct", "c"), ("btt,btc->bct", "m a"), ("btt,td->bd", "m w")],
)
def test_einsum_of_a_diagonal(tmp_path: Path, equation: str, operands: str) -> None:
    nodes = [
        node("Einsum", "a a", "m", equation="btc,bsc->bts"),
        node("Einsum", "a a", "c", equation="btc,bsc->btcs"),
        node("Einsum", operands, "y", equation=equation),
    ]
    token_case(tmp_path, nodes, {"w": normal(TOKENS, 4)})


@pytest.mark.parametrize(
    ("equation", "operands", "reason"),
    [
        ("btc->tc", "a", "combines the examples of a batch"),
        ("btc,btc->tc", "a a", "combines the examples of a batch"),
        ("btc,atc->bac", "a a", "combines the examples of a batch"),
        ("btc,tc->btc", "a table", "by constants of their own"),
        ("btc,tt->btc", "a by_token", "takes a diagonal of a constant"),
        ("bbc->bc", "a", "combines the examples of a batch"),
        ("btc,btd,bte->bcde", "a a a", "has 3 operands; expected one or two"),
    ],
)
def test_other_einsums_are_refused(tmp_path: Path, equation: str, operands: str, reason: str) -> None:
    with pytest.raises(MistifyError, match=f"Einsum.*{reason}"):
        token_case(
            tmp_path,
            [node("Einsum", operands, "y", equation=equation)],
            {"table": normal(TOKENS, CHANNELS), "by_token": normal(TOKENS, TOKENS)},
        )


WIDTH = CHANNELS // HEADS


def divided(order: str) -> tuple[list[Any], dict[str, Array]]:
    """Return the nodes of a product for queries, keys and values, in this order, `q`, `k`, `v` with heads."""
    nodes = [
        node("MatMul", "a attn.qkv.weight", "m"),
        node("Add", "m attn.qkv.bias", "n"),
        node("Reshape", "n divided", "r"),
        node("Transpose", "r", "t", perm=[2, 0, 3, 1, 4]),
        *(node("Gather", f"t part{index}", name, axis=0) for index, name in enumerate(order)),
    ]
    weights = {
        "attn.qkv.weight": normal(CHANNELS, 3 * CHANNELS),
        "attn.qkv.bias": normal(3 * CHANNELS),
        "divided": np.array([0, TOKENS, 3, HEADS, WIDTH]),
        **{f"part{index}": np.int64(index) for index in range(3)},
    }
    return nodes, weights


def separate(order: str) -> tuple[list[Any], dict[str, Array]]:
    """Return the nodes of three products."""
    nodes: list[Any] = []
    for name in order:
        nodes += [
            node("MatMul", f"a {name}.weight", f"{name}1"),
            node("Reshape", f"{name}1 heads", f"{name}2"),
            node("Transpose", f"{name}2", name, perm=[0, 2, 1, 3]),
        ]
    weights = {f"{name}.weight": normal(CHANNELS, CHANNELS, seed=ord(name)) for name in order}
    return nodes, {**weights, "heads": np.array([0, TOKENS, HEADS, WIDTH])}


_MIXED = [
    node("Softmax", "scaled", "shares", axis=-1),
    node("MatMul", "shares v", "o"),
    node("Transpose", "o", "ot", perm=[0, 2, 1, 3]),
    node("Reshape", "ot joined", "j"),
    node("MatMul", "j attn.proj.weight", "z"),
    node("Add", "z attn.proj.bias", "y"),
]
_SCORES = {
    "scores scaled": [
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "w"),
        node("Mul", "w half", "scaled"),
    ],
    "queries scaled": [
        node("Mul", "q half", "qs"),
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "qs kt", "scaled"),
    ],
    "both scaled": [
        *(node("Mul", "q half", "qs"), node("Mul", "k two", "ks")),
        node("Transpose", "ks", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "qs kt", "scaled"),
    ],
}
_PROJECTION = {
    "joined": np.array([0, TOKENS, CHANNELS]),
    "attn.proj.weight": normal(CHANNELS, 9),
    "attn.proj.bias": normal(9),
}


@pytest.mark.parametrize("scores", _SCORES)
@pytest.mark.parametrize(
    "parts", [divided("qkv"), divided("vqk"), separate("qkv")], ids=["qkv", "vqk", "separate"]
)
def test_attention_is_one_layer(
    tmp_path: Path, parts: tuple[list[Any], dict[str, Array]], scores: str
) -> None:
    nodes, weights = parts
    network = token_case(tmp_path, [*nodes, *_SCORES[scores], *_MIXED], {**weights, **_PROJECTION})
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds == ["InputLayer", "Dense", "MultiHeadAttention", "Identity"]
    if "attn.qkv.weight" in weights:
        assert network.layers[2].name == "attn"


@pytest.mark.parametrize(
    "changed",
    [
        [*_SCORES["scores scaled"][:2], node("Add", "w mask", "scaled"), *_MIXED],
        [*_SCORES["scores scaled"], node("Softmax", "scaled", "shares", axis=-2), *_MIXED[1:]],
        [
            *(*_SCORES["scores scaled"], *_MIXED[:2]),
            node("Reshape", "o joined", "j"),  # mixes positions of different heads
            *_MIXED[4:],
        ],
        [
            node("Relu", "q", "q2"),
            node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
            node("MatMul", "q2 kt", "scaled"),
            *_MIXED,
        ],
    ],
    ids=["mask", "other axis", "positions", "activation"],
)
def test_what_resembles_attention_stays(tmp_path: Path, changed: list[Any]) -> None:
    nodes, weights = divided("qkv")
    mask = {"mask": normal(1, 1, TOKENS, TOKENS)}
    network = token_case(tmp_path, [*nodes, *changed], {**weights, **_PROJECTION, **mask})
    assert "MultiHeadAttention" not in {type(layer).__name__ for layer in network.layers}


def test_queries_may_share_keys_and_values(tmp_path: Path) -> None:
    nodes, weights = separate("q")
    for name in "kv":
        nodes += [
            node("MatMul", f"a {name}.weight", f"{name}1"),
            node("Unsqueeze", f"{name}1 first", name),
        ]
    shared = {f"{name}.weight": normal(CHANNELS, WIDTH, seed=ord(name)) for name in "kv"}
    weights = {**weights, **shared, "first": np.array([1]), **_PROJECTION}
    network = token_case(tmp_path, [*nodes, *_SCORES["scores scaled"], *_MIXED], weights)
    assert "MultiHeadAttention" not in {type(layer).__name__ for layer in network.layers}


def test_a_class_token_is_joined_to_each_example(tmp_path: Path) -> None:
    nodes = [
        *_EXAMPLE_COUNT,
        node("Concat", "n rest", "t", axis=0),
        node("Expand", "token t", "e"),
        node("Concat", "e a", "j", axis=1),
        node("Add", "j position", "y"),
    ]
    weights = {
        **_COUNT_CONSTANTS,
        "rest": np.array([1, CHANNELS]),
        "token": normal(1, 1, CHANNELS),
        "position": normal(1, TOKENS + 1, CHANNELS),
    }
    token_case(tmp_path, nodes, weights)


def test_all_examples_are_selected(tmp_path: Path) -> None:
    nodes = [
        *_EXAMPLE_COUNT,
        node("Concat", "n three", "ends", axis=0),
        node("Slice", "a starts ends", "y"),
    ]
    weights = {
        **_COUNT_CONSTANTS,
        "three": np.array([3]),
        "starts": np.array([0, 1]),
    }
    token_case(tmp_path, nodes, weights)


def test_rows_of_a_table_are_looked_up(tmp_path: Path) -> None:
    nodes = [
        node("Gather", "word.weight x", "e"),
        node("Add", "e position", "p"),
        node("ReduceMean", "p", "m", axes=[1], keepdims=0),
        node("MatMul", "m w", "y"),
    ]
    weights = {"word.weight": normal(50, 8), "position": normal(1, 7, 8), "w": normal(8, 3)}
    path = written(
        tmp_path / "net.onnx", model(nodes, {"x": ["n", 7]}, weights, opset=13, kind=TensorProto.INT64)
    )
    network, x = load_onnx(path), np.random.default_rng(0).integers(0, 50, (3, 7))
    (expected,) = outputs_of(path, {"x": x})
    np.testing.assert_allclose(np.asarray(network(x)), expected, atol=1e-5)
    assert network.layers[1].name == "word"
