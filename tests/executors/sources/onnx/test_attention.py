"""Attention with masks, shared keys and caches, as an operator and as products, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from executors.sources.onnx.evaluator import evaluator
from executors.sources.onnx.loading import load_onnx
from executors.structure import analyse
from mistify.errors import MistifyError
from tests.support.onnx_files import Array, model, node, normal, outputs_of, written

TOKENS, CHANNELS, HEADS, SHARED, OPSET = 6, 12, 6, 3, 23
WIDTH = CHANNELS // HEADS
LOW = np.float32(-np.inf)


def projected(
    *, queries: int = HEADS, shared: int = HEADS, values: int | None = None, flat: bool = False
) -> tuple[list[Any], dict[str, Array]]:
    """Return the nodes of queries `q`, keys `k` and values `v` [n, heads, tokens, width], and their weights.

    Args:
        queries: Number of heads of queries.
        shared: Number of heads of keys, and of values.
        values: Number of heads of values, if it is another.
        flat: Whether the heads are within the last axis.
    """
    nodes: list[Any] = []
    weights: dict[str, Array] = {}
    for name, heads in (("q", queries), ("k", shared), ("v", values or shared)):
        weights[f"attn.{name}.weight"] = normal(CHANNELS, heads * WIDTH, seed=ord(name), scale=1.0)
        weights[f"attn.{name}.bias"] = normal(heads * WIDTH, seed=ord(name))
        weights[f"heads{heads}"] = np.array([0, TOKENS, heads, WIDTH])
        nodes += [
            node("MatMul", f"a attn.{name}.weight", f"{name}1"),
            node("Add", f"{name}1 attn.{name}.bias", name if flat else f"{name}2"),
        ]
        if not flat:
            nodes += [
                node("Reshape", f"{name}2 heads{heads}", f"{name}3"),
                node("Transpose", f"{name}3", name, perm=[0, 2, 1, 3]),
            ]
    return nodes, weights


#: The end of an attention, from `o` [n, heads, tokens, width] or `j` [n, tokens, channels] to `y`.
_JOINED = [node("MatMul", "j attn.out.weight", "z"), node("Add", "z attn.out.bias", "y")]
_END = [node("Transpose", "o", "ot", perm=[0, 2, 1, 3]), node("Reshape", "ot joined", "j"), *_JOINED]
_END_WEIGHTS = {
    "joined": np.array([0, TOKENS, CHANNELS]),
    "attn.out.weight": normal(CHANNELS, CHANNELS),
    "attn.out.bias": normal(CHANNELS, seed=1),
}

#: Products with a softmax between them, of `q`, `k` and `v`, around the nodes from `w` to `scores`.
_SCORES = [
    node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
    node("MatMul", "q kt", "qk"),
    node("Mul", "qk half", "w"),
]
_SHARES = [node("Softmax", "scores", "shares", axis=-1), node("MatMul", "shares v", "o"), *_END]
_UNMASKED = node("Identity", "w", "scores")

#: A mask [n, 1, 1, tokens] by the network's input: `seen`, and its opposite. The first token is always seen.
_SEEN = [
    node("ReduceSum", "x last", "sum", keepdims=0),
    *(node("Add", "sum high", "total"), node("Greater", "total least", "there")),
    node("Unsqueeze", "there axes", "seen"),
    node("Not", "seen", "unseen"),
]
CAUSAL = np.tri(TOKENS, dtype=bool)
_MASKS = {
    "last": np.array([-1]), "least": np.float32(0.5), "high": np.eye(1, TOKENS, dtype=np.float32) * 100,
    "axes": np.array([1, 2]), "half": np.float32(0.5), "low": LOW,
    "zero": np.float32(0), "lowest": np.float32(-1e9), "causal": CAUSAL,
    "causal4": CAUSAL[None, None], "causal_addends": np.where(CAUSAL, 0, LOW).astype(np.float32),
    "band": np.abs(np.subtract.outer(range(TOKENS), range(TOKENS))) < 3,
    "short": np.ones((TOKENS, TOKENS - 2), bool),
    "bias": normal(1, 1, TOKENS, TOKENS), "bias_of_heads": normal(1, HEADS, TOKENS, TOKENS),
    "by_head": normal(1, HEADS, TOKENS, TOKENS) > -0.3,
    "causal_bias": np.where(CAUSAL, normal(TOKENS, TOKENS), LOW).astype(np.float32),
}  # fmt: skip


def attention_case(
    tmp_path: Path,
    nodes: list[Any],
    weights: dict[str, Array],
    *,
    opset: int = OPSET,
    outputs: tuple[str, ...] = ("y",),
) -> keras.Model:
    """Check nodes that follow a product with a matrix, from `a` [n, tokens, channels] to `y`."""
    first = [node("MatMul", "x first.weight", "p"), node("Add", "p first.bias", "a")]
    stored = {"first.weight": normal(5, CHANNELS, scale=1.0), "first.bias": normal(CHANNELS)}
    read = {name for each in nodes for name in each.input}
    stored |= {name: array for name, array in {**_MASKS, **_END_WEIGHTS, **weights}.items() if name in read}
    proto = model([*first, *nodes], {"x": ["n", TOKENS, 5]}, stored, opset=opset, outputs=outputs)
    path, x = written(tmp_path / "net.onnx", proto), normal(3, TOKENS, 5, scale=1.0)
    network = load_onnx(path)
    made = keras.tree.flatten(network(x, training=False))
    # ONNX Runtime's attention takes no masks for fewer keys, or for all queries.
    by_reference = opset == OPSET and not read.isdisjoint({"seen", "short"})
    outputs_ = evaluator(proto).run(None, {"x": x}) if by_reference else outputs_of(path, {"x": x})
    for own, expected in zip(made, outputs_, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-5 * np.abs(expected).max())
    return network


def kinds(network: keras.Model) -> list[str]:
    return [type(layer).__name__ for layer in network.layers]


def arguments_of(network: keras.Model) -> dict[str, Any]:
    """Return the keyword arguments of the only attention layer."""
    nodes = analyse(network).graph.nodes
    (call,) = [each for each in nodes if "Attention" in type(each.layer).__name__]
    return dict(call.kwargs)


@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"is_causal": 1}], ids=str)
@pytest.mark.parametrize("flat", [False, True])
def test_the_operator_is_one_layer_with_its_projections(
    tmp_path: Path, flat: bool, options: dict[str, Any]
) -> None:
    nodes, weights = projected(flat=flat)
    counts = {"q_num_heads": HEADS, "kv_num_heads": HEADS} if flat else {}
    nodes += [node("Attention", "q k v", "j" if flat else "o", **counts, **options)]
    network = attention_case(tmp_path, [*nodes, *(_JOINED if flat else _END)], weights)
    assert kinds(network) == ["InputLayer", "Dense", "MultiHeadAttention", "Identity"]
    assert arguments_of(network) == ({"use_causal_mask": True} if options.get("is_causal") else {})
    assert network.layers[2].name == "attn"
    assert analyse(network).widths["attn"] == HEADS


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("flat", [False, True])
def test_shared_keys_are_cut_with_their_queries(tmp_path: Path, flat: bool, causal: int) -> None:
    nodes, weights = projected(shared=SHARED, flat=flat)
    counts = {"q_num_heads": HEADS, "kv_num_heads": SHARED} if flat else {}
    nodes += [node("Attention", "q k v", "j" if flat else "o", is_causal=causal, **counts)]
    network = attention_case(tmp_path, [*nodes, *(_JOINED if flat else _END)], weights)
    assert kinds(network) == ["InputLayer", "Dense", "GroupedQueryAttention", "Identity"]
    assert analyse(network).widths["attn"] == SHARED


def test_keys_that_are_expanded_are_shared(tmp_path: Path) -> None:
    nodes, weights = projected(shared=SHARED)
    for name in "kv":
        nodes += [
            node("Unsqueeze", f"{name} third", f"{name}5"),
            node("Expand", f"{name}5 expanded", f"{name}6"),
            node("Reshape", f"{name}6 repeated", f"{name}7"),
        ]
    weights |= {
        "third": np.array([2]),
        "expanded": np.array([1, SHARED, HEADS // SHARED, TOKENS, WIDTH]),
        "repeated": np.array([0, HEADS, TOKENS, WIDTH]),
    }
    scores = [
        node("Transpose", "k7", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "qk"),
        node("Softmax", "qk", "shares", axis=-1),
        node("MatMul", "shares v7", "o"),
    ]
    network = attention_case(tmp_path, [*nodes, *scores, *_END], weights, opset=17)
    assert kinds(network) == ["InputLayer", "Dense", "GroupedQueryAttention", "Identity"]


@pytest.mark.parametrize(
    "heads",
    [{"queries": 1, "shared": 1, "values": HEADS}, {"values": 1}],
    ids=["scores are shared", "values are shared"],
)
def test_heads_that_only_products_share_stay_products(tmp_path: Path, heads: dict[str, int]) -> None:
    nodes, weights = projected(**heads)
    network = attention_case(tmp_path, [*nodes, *_SCORES, _UNMASKED, *_SHARES], weights, opset=17)
    assert not any("Attention" in kind for kind in kinds(network))


_AS_OPERATOR = {
    "truth values": ("q k v causal", {}),
    "addends": ("q k v causal_addends", {}),
    "for each example": ("q k v causal4", {}),
    "a band": ("q k v band", {}),
    "a causal band": ("q k v band", {"is_causal": 1}),
    "fewer keys": ("q k v short", {}),
    "computed": ("q k v seen", {}),
    "computed and causal": ("q k v seen", {"is_causal": 1}),
    "computed addends": ("q k v added", {}),
}
_AS_NODES = {
    "added": [node("Add", "w causal_addends", "scores")],
    "chosen": [node("Where", "causal w low", "scores")],
    "computed": [node("Where", "seen w low", "scores")],
    "computed opposite": [node("Where", "unseen low w", "scores")],
    "computed addends": [node("Where", "seen zero lowest", "added"), node("Add", "added w", "scores")],
    "opposite addends": [node("Where", "unseen lowest zero", "added"), node("Add", "w added", "scores")],
    "both": [node("Add", "w causal_addends", "u"), node("Where", "seen u low", "scores")],
}


@pytest.mark.parametrize("name", _AS_OPERATOR)
def test_a_mask_is_an_argument_of_the_layer(tmp_path: Path, name: str) -> None:
    nodes, weights = projected()
    inputs, options = _AS_OPERATOR[name]
    added = [node("Where", "seen zero lowest", "added")]
    attention = [
        *_seen(inputs),
        *(added if "added" in inputs else []),
        node("Attention", inputs, "o", **options),
    ]
    network = attention_case(tmp_path, [*nodes, *attention, *_END], weights)
    assert kinds(network).count("MultiHeadAttention") == 1
    arguments = arguments_of(network)
    assert arguments.keys() == _expected_arguments(
        inputs, bool(options), "short" in inputs or "band" in inputs
    )


@pytest.mark.parametrize("name", _AS_NODES)
def test_a_mask_among_products_is_an_argument_of_the_layer(tmp_path: Path, name: str) -> None:
    nodes, weights = projected()
    mask = _AS_NODES[name]
    read = " ".join(each for one in mask for each in one.input)
    network = attention_case(tmp_path, [*nodes, *_seen(read), *_SCORES, *mask, *_SHARES], weights, opset=17)
    assert kinds(network).count("MultiHeadAttention") == 1
    assert arguments_of(network).keys() == _expected_arguments(read, False, False)


def _seen(read: str) -> list[Any]:
    """Return the nodes of the computed mask if it is read."""
    return _SEEN if "seen" in read or "added" in read else []


def _expected_arguments(read: str, causal: bool, other: bool) -> set[str]:
    computed = "seen" in read or "added" in read or other
    causal = "causal" in read or (causal and not other)
    return {*(["attention_mask"] if computed else []), *(["use_causal_mask"] if causal else [])}


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        ("q k v bias", {}),
        ("q k v bias_of_heads", {}),
        ("q k v by_head", {}),
        ("q k v causal_bias", {"is_causal": 1}),
        ("q k v", {"softcap": 0.7, "scale": 2.0}),
    ],
    ids=str,
)
def test_what_layers_cannot_do_stays_products(tmp_path: Path, inputs: str, options: dict[str, Any]) -> None:
    nodes, weights = projected()
    network = attention_case(tmp_path, [*nodes, node("Attention", inputs, "o", **options), *_END], weights)
    assert "MultiHeadAttention" not in kinds(network)
    assert kinds(network).count("Softmax") == 1


def test_attention_without_projections(tmp_path: Path) -> None:
    nodes = [node("Attention", "a a a", "y", q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1)]
    network = attention_case(tmp_path, nodes, {})
    assert kinds(network).count("Softmax") == 1


def test_keys_and_values_are_returned(tmp_path: Path) -> None:
    nodes, weights = projected(shared=SHARED)
    nodes += [node("Attention", "q k v", "o k_cache v_cache"), *_END]
    attention_case(tmp_path, nodes, weights, outputs=("y", "k_cache", "v_cache"))


@pytest.mark.parametrize("causal", [0, 1])
def test_keys_and_values_of_earlier_calls_are_inputs(tmp_path: Path, causal: int) -> None:
    earlier = 4
    nodes, weights = projected(shared=SHARED)
    nodes += [node("Attention", "q k v - k_past v_past", "o k_cache v_cache", is_causal=causal), *_END]
    shape = ["n", SHARED, earlier, WIDTH]
    proto = model(
        nodes,
        {"a": ["n", TOKENS, CHANNELS], "k_past": shape, "v_past": shape},
        {**weights, **_END_WEIGHTS},
        opset=OPSET,
        outputs=("y", "k_cache", "v_cache"),
    )
    feed = {
        "a": normal(3, TOKENS, CHANNELS, scale=1.0),
        **{name: normal(3, SHARED, earlier, WIDTH, seed=ord(name[0])) for name in ("k_past", "v_past")},
    }
    path = written(tmp_path / "net.onnx", proto)
    made = load_onnx(path)(list(feed.values()), training=False)
    for own, expected in zip(made, outputs_of(path, feed), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ("q k v - - - lengths", "o", "has sequences of different lengths"),
        ("q k v nothing", "o", "has a query that must not read any key"),
        ("q k v", "o k_cache v_cache y", "returns 'y' as output 4"),
        ("q k v flat_mask", "o", r"has a mask of shape \(None, 6\)"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, inputs: str, outputs: str, reason: str) -> None:
    nodes, weights = projected()
    weights |= {"lengths": np.full(3, TOKENS), "nothing": np.zeros((TOKENS, TOKENS), bool)}
    flat = [node("ReduceSum", "a last", "flat_mask", keepdims=0)] if "flat" in inputs else []
    end = [] if "y" in outputs else _END
    with pytest.raises(MistifyError, match=f"node Attention.*{reason}"):
        attention_case(tmp_path, [*nodes, *flat, node("Attention", inputs, outputs), *end], weights, opset=24)


def test_shares_that_pytorch_replaces_where_nothing_is_read_end_in_a_layer(tmp_path: Path) -> None:
    nodes, weights = projected()
    shares = [
        *(node("Where", "causal w low", "scores"), node("Softmax", "scores", "raw", axis=-1)),
        *(node("IsNaN", "raw", "undefined"), node("Where", "undefined zero raw", "shares")),
    ]
    network = attention_case(tmp_path, [*nodes, *_SCORES, *shares, *_SHARES[1:]], weights, opset=17)
    assert kinds(network) == ["InputLayer", "Dense", "MultiHeadAttention", "Identity"]


def test_heads_that_stay_products_are_moved_once_each(tmp_path: Path) -> None:
    """Queries, keys and values are moved to their heads, and these back to the positions."""
    nodes, weights = projected()
    nodes += [node("Attention", "q k v bias", "o"), *_END]
    network = attention_case(tmp_path, nodes, weights)
    assert kinds(network).count("Permute") == 4
    assert analyse(network).widths["attn.v"] == WIDTH


def test_layers_are_named_after_the_modules_of_nodes(tmp_path: Path) -> None:
    """PyTorch's newest exporter transposes the weights of linear layers, which then lose their names."""
    products = [node("MatMul", "a val_1", "b", name="node_linear"), node("MatMul", "b up.weight", "y")]
    for each, module in zip(products, ("blocks.0.down", "no.module"), strict=True):
        scopes = each.metadata_props.add()
        scopes.key, scopes.value = "pkg.torch.onnx.name_scopes", f"['', 'blocks.0', '{module}', 'linear']"
    weights = {"val_1": normal(CHANNELS, 7), "up.weight": normal(7, CHANNELS)}
    network = attention_case(tmp_path, products, weights)
    assert [layer.name for layer in network.layers if layer.weights] == ["first", "blocks.0.down", "up"]
