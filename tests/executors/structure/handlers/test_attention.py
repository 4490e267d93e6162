import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_widen,
    outputs,
    randomised,
    same,
    same_costs,
)

layers = keras.layers
STEPS, HEADS, KEY, VALUE = 5, 4, 3, 6


def encoder(with_mask=False, **options):
    """Return attention from a second token sequence to a first one. All inner widths can be cut."""
    reported, asked = keras.Input((STEPS, 7), name="tokens"), keras.Input((STEPS - 1, 5), name="queries")
    arrays = [reported, asked]
    x, y = layers.Dense(8, name="x")(reported), layers.Dense(9, name="y")(asked)
    kwargs = {}
    if with_mask:
        arrays.append(keras.Input((STEPS - 1, STEPS), dtype="bool", name="mask"))
        kwargs["attention_mask"] = arrays[-1]
    attention = layers.MultiHeadAttention(HEADS, KEY, VALUE, name="attention", **options)
    x = attention(query=y, value=x, **kwargs)
    return randomised(keras.Model(arrays, layers.Dense(3, name="out")(x)))


def inputs_of(model):
    return [
        np.random.default_rng(2).uniform(size=arrays.shape) < 0.7 if tensor.dtype == "bool" else arrays
        for tensor, arrays in zip(model.inputs, batch(model), strict=True)
    ]


def softmax(scores):
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def by_hand(model, arrays, heads, values):
    """Compute the same in NumPy, head by head, with only the kept heads and values."""
    kernel, bias = model.get_layer("x").get_weights()
    reported = arrays[0] @ kernel + bias
    kernel, bias = model.get_layer("y").get_weights()
    asked = arrays[1] @ kernel + bias
    layer = model.get_layer("attention")
    weights = [np.asarray(weight) for weight in layer.weights]
    q, qb, k, kb, v, vb, o, ob = weights if layer.use_bias else [w for x in weights for w in (x, 0)]
    total = ob
    for head in np.flatnonzero(heads):
        picked = [b[head] if np.ndim(b) else 0 for b in (qb, kb, vb)]
        query, key = asked @ q[:, head] + picked[0], reported @ k[:, head] + picked[1]
        value = (reported @ v[:, head] + picked[2])[..., values]
        scores = query @ np.swapaxes(key, 1, 2) / np.sqrt(KEY)
        if len(arrays) > 2:
            scores = np.where(arrays[2], scores, -1e9)
        total = total + softmax(scores) @ value @ o[head][values]
    kernel, bias = model.get_layer("out").get_weights()
    return total @ kernel + bias


@pytest.mark.parametrize("options", [{}, {"use_bias": False}, {"output_shape": 10}])
def test_cutting_heads_values_and_widths_matches_the_computation_by_hand(options):
    source = encoder(**options)
    structure = analyse(source)
    made = options.get("output_shape", 9)
    groups = {"x": 8, "y": 9, "attention": HEADS, "attention#2": VALUE, "attention#3": made}
    assert structure.widths == groups
    heads, values = alternate(HEADS), alternate(VALUE, 1)
    arrays = inputs_of(source)
    small = narrow(structure, {"attention": heads, "attention#2": values})
    same([by_hand(source, arrays, heads, values)], outputs(small, arrays))
    same_costs(structure, {"attention": int(heads.sum()), "attention#2": int(values.sum())}, small)


def test_cutting_channels_around_attention_equals_masking():
    source = encoder()
    keep = {"x": alternate(8), "y": alternate(9), "attention#3": alternate(9, 2)}
    small = narrow(analyse(source), keep)
    arrays = inputs_of(source)
    for name, kept in (("x", keep["x"]), ("y", keep["y"])):
        kernel, bias = source.get_layer(name).get_weights()
        source.get_layer(name).set_weights([kernel * kept, bias * kept])
    kernel, bias = source.get_layer("out").get_weights()
    source.get_layer("out").set_weights([kernel * keep["attention#3"][:, None], bias])
    same(outputs(source, arrays), outputs(small, arrays))


def test_a_mask_is_not_taken_for_a_key():
    source = encoder(with_mask=True)
    heads = alternate(HEADS)
    arrays = inputs_of(source)
    small = narrow(analyse(source), {"attention": heads, "x": np.ones(8, bool)})
    same([by_hand(source, arrays, heads, np.ones(VALUE, bool))], outputs(small, arrays))


def test_the_positions_of_a_mask_are_not_cut():
    """Keyword arguments are sorted by name, so that the mask comes first."""
    inputs = keras.Input((STEPS, 4))
    x = layers.Dense(8, name="x")(inputs)
    scores = layers.Dense(STEPS, activation="relu", name="scores")(inputs)
    attention = layers.MultiHeadAttention(2, 3, name="attention")
    x = attention(query=x, value=x, attention_mask=keras.ops.cast(scores, "bool"))
    source = randomised(keras.Model(inputs, layers.Dense(3, name="out")(x)))
    structure = analyse(source)
    assert {node.name: node for node in structure.graph.nodes}["attention"].argument("attention_mask") == 0
    assert structure.widths == {"x": 8, "attention": 2, "attention#2": 3, "attention#3": 8}


def test_self_attention_does_not_fix_the_width_of_the_tokens():
    inputs = keras.Input((STEPS, 4))
    x = layers.Dense(8, name="x")(inputs)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 3, name="attention")(x, x)])
    source = randomised(keras.Model(inputs, layers.Dense(3, name="out")(x)))
    structure, keep = analyse(source), alternate(8)
    assert structure.widths == {"x": 8, "attention": 2, "attention#2": 3}
    small = narrow(structure, {"x": keep})
    arrays = batch(source)
    for name in ("x", "attention"):
        *others, kernel, bias = source.get_layer(name).get_weights()
        source.get_layer(name).set_weights([*others, kernel * keep, bias * keep])
    kernel, bias = source.get_layer("out").get_weights()
    source.get_layer("out").set_weights([kernel * keep[:, None], bias])
    same(outputs(source, arrays), outputs(small, arrays))


def test_widening_does_not_change_the_outputs():
    check_widen(encoder())
    check_clone(encoder())


def test_multiply_adds_match_values_computed_by_hand():
    network = analyse(encoder()).network()
    cost = next(layer for layer in network.layers if layer.name == "attention")
    asked, reported = STEPS - 1, STEPS
    kernels = asked * 9 * HEADS * KEY + reported * 8 * HEADS * (KEY + VALUE) + asked * HEADS * VALUE * 9
    assert cost.multiply_adds == kernels + asked * reported * HEADS * (KEY + VALUE)


@pytest.mark.parametrize("used", [False, True])
def test_attention_that_returns_its_scores_is_refused_only_if_they_are_used(used):
    inputs = keras.Input((STEPS, 6))
    attention = layers.MultiHeadAttention(2, 3, name="scored")
    x, scores = attention(inputs, inputs, return_attention_scores=True)
    model = keras.Model(inputs, layers.Dense(3)(layers.Flatten()(scores) if used else x))
    if used:
        with pytest.raises(UnsupportedLayerError, match="'scored' returns its scores, which are used"):
            analyse(model)
    else:
        check_clone(randomised(model))


def test_attention_with_scores_explicitly_disabled_is_accepted():
    inputs = keras.Input((STEPS, 6))
    x = layers.MultiHeadAttention(2, 3, name="plain")(inputs, inputs, return_attention_scores=False)
    check_clone(randomised(keras.Model(inputs, layers.Dense(3)(x))))


def test_gated_attention_is_refused():
    inputs = keras.Input((STEPS, 6))
    x = layers.MultiHeadAttention(2, 3, use_gate=True, name="gated")(inputs, inputs)
    with pytest.raises(UnsupportedLayerError, match="'gated' is gated"):
        analyse(keras.Model(inputs, x))


def grouped(shared=2, **options):
    """Return attention in which the heads of queries share keys, and a second one over other tokens."""
    inputs, others = keras.Input((STEPS, 4), name="tokens"), keras.Input((STEPS - 1, 5), name="queries")
    x, y = layers.Dense(8, name="x")(inputs), layers.Dense(8, name="y")(others)
    attention = layers.GroupQueryAttention(KEY, HEADS, shared, name="attention", **options)
    x = attention(y, x, use_causal_mask=True)
    return randomised(keras.Model([inputs, others], layers.Dense(3, name="out")(x)))


def grouped_by_hand(model, arrays, kept):
    """Compute the same in NumPy, head by head, with only the kept heads of keys and values."""
    x, y = (
        array @ model.get_layer(name).get_weights()[0] + model.get_layer(name).get_weights()[1]
        for name, array in zip("xy", arrays, strict=True)
    )
    layer = model.get_layer("attention")
    weights = [np.asarray(weight) for weight in layer.weights]
    q, qb, k, kb, v, vb, o, ob = weights if layer.use_bias else [w for each in weights for w in (each, 0)]
    total = ob
    for head in range(HEADS):
        shared = head // (HEADS // k.shape[1])
        if not kept[shared]:
            continue
        query = y @ q[:, head] + (qb[head] if np.ndim(qb) else 0)
        key, value = (
            x @ kernel[:, shared] + (bias[shared] if np.ndim(bias) else 0)
            for kernel, bias in ((k, kb), (v, vb))
        )
        scores = query @ np.swapaxes(key, 1, 2) / np.sqrt(KEY)
        scores = np.where(np.tri(STEPS - 1, STEPS, dtype=bool), scores, -1e9)
        total = total + softmax(scores) @ value @ o[head]
    kernel, bias = model.get_layer("out").get_weights()
    return total @ kernel + bias


@pytest.mark.parametrize("options", [{}, {"use_bias": False}])
def test_shared_heads_are_cut_with_their_queries(options):
    source = grouped(**options)
    structure = analyse(source)
    assert structure.widths == {"y": 8, "attention": 2}
    arrays, kept = inputs_of(source), np.array([False, True])
    small = narrow(structure, {"attention": kept})
    assert small.get_layer("attention").num_query_heads == HEADS // 2
    same([grouped_by_hand(source, arrays, kept)], outputs(small, arrays))
    same_costs(structure, {"attention": 1}, small)


def test_channels_of_shared_attention_are_tied_to_those_of_its_query():
    source = grouped()
    keep = alternate(8)
    small = narrow(analyse(source), {"y": keep})
    assert [small.get_layer(name).units for name in "xy"] == [keep.sum()] * 2
    assert small.get_layer("attention").weights[-2].shape == (HEADS, KEY, keep.sum())
    check_widen(grouped())
    check_clone(grouped())


def test_multiply_adds_of_shared_attention_match_values_computed_by_hand():
    network = analyse(grouped()).network()
    cost = next(layer for layer in network.layers if layer.name == "attention")
    queries, keys = STEPS - 1, STEPS
    kernels = 2 * queries * 8 * HEADS * KEY + 2 * keys * 8 * 2 * KEY
    assert cost.multiply_adds == kernels + 2 * queries * keys * HEADS * KEY


def test_gated_attention_with_shared_keys_is_refused():
    inputs = keras.Input((STEPS, 6))
    x = layers.GroupQueryAttention(3, 4, 2, use_gate=True, name="gated")(inputs, inputs)
    with pytest.raises(UnsupportedLayerError, match="'gated' is gated"):
        analyse(keras.Model(inputs, x))


@pytest.mark.parametrize("layer", [layers.Embedding, layers.ReversibleEmbedding])
def test_cutting_embeddings_equals_masking(layer):
    inputs = keras.Input((6,), dtype="int32")
    x = layer(11, 8, name="tokens")(inputs)
    source = randomised(keras.Model(inputs, layers.Dense(3, name="out")(layers.GlobalMaxPooling1D()(x))))
    tokens = np.random.default_rng(0).integers(0, 11, (4, 6))
    structure, keep = analyse(source), alternate(8)
    assert structure.widths == {"tokens": 8}
    small = narrow(structure, {"tokens": keep})
    table = source.get_layer("tokens").get_weights()[0][:, keep]
    kernel, bias = source.get_layer("out").get_weights()
    same([table[tokens].max(axis=1) @ kernel[keep] + bias], outputs(small, [tokens]))
    same_costs(structure, {"tokens": int(keep.sum())}, small)


def test_a_reversed_embedding_is_refused():
    inputs = keras.Input((6,), dtype="int32")
    tokens = layers.ReversibleEmbedding(11, 8, name="tokens")
    with pytest.raises(UnsupportedLayerError, match="called in reverse"):
        analyse(keras.Model(inputs, tokens(tokens(inputs), reverse=True)))
