import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_narrow,
    check_widen,
    outputs,
    randomised,
    same,
    unmasked,
)

layers = keras.layers
QUERIES, KEYS, COMPARED, VALUES = 4, 5, 6, 7

KINDS = {
    "products": lambda: layers.Attention(name="attention"),
    "scaled products": lambda: layers.Attention(use_scale=True, name="attention"),
    "sums with one weight": lambda: layers.Attention(score_mode="concat", name="attention"),
    "weighted sums": lambda: layers.AdditiveAttention(name="attention"),
    "sums": lambda: layers.AdditiveAttention(use_scale=False, name="attention"),
}


def of_three(attention):
    """Return a builder of attention with queries, keys and values of their own."""

    def build(mask):
        asked, read = keras.Input((QUERIES, 3), name="asked"), keras.Input((KEYS, 2), name="read")
        query = mask("query", layers.Dense(COMPARED, name="query")(asked))
        key = mask("query", layers.Dense(COMPARED, name="key")(read))
        value = mask("value", layers.Dense(VALUES, name="value")(read))
        x = mask("value", attention()([query, value, key]))
        return keras.Model([asked, read], layers.Dense(3, name="out")(x))

    return build


def of_itself(attention):
    """Return a builder of attention of the steps of a recurrent layer to each other."""

    def build(mask):
        inputs = keras.Input((KEYS, 3))
        x = mask("steps", layers.Dense(COMPARED, name="steps")(inputs))
        x = mask("steps", attention()([x, x]))
        return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))

    return build


@pytest.mark.parametrize("attention", KINDS.values(), ids=KINDS)
def test_cutting_compared_channels_and_values_equals_masking(attention):
    keep = {"query": alternate(COMPARED), "value": alternate(VALUES, 1)}
    structure, small = check_narrow(of_three(attention), keep)
    assert structure.widths == {"query": COMPARED, "value": VALUES}
    assert small.get_layer("key").units == keep["query"].sum()
    check_narrow(of_itself(attention), {"steps": alternate(COMPARED)})


@pytest.mark.parametrize("attention", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("build", [of_three, of_itself])
def test_widening_and_cloning_do_not_change_the_outputs(build, attention):
    check_widen(randomised(build(attention)(unmasked)))
    check_clone(randomised(build(attention)(unmasked)))


def test_only_weighted_sums_of_queries_and_keys_are_widened():
    widths = {
        name: analyse(check_widen(randomised(of_three(attention)(unmasked)))).widths["query"]
        for name, attention in KINDS.items()
    }
    assert widths == dict.fromkeys(KINDS, COMPARED) | {"weighted sums": 2 * COMPARED}


@pytest.mark.parametrize("kind", [layers.Attention, layers.AdditiveAttention])
def test_padding_is_treated_as_before(kind):
    ids = keras.Input((KEYS,), dtype="int32")
    x = layers.GRU(COMPARED, return_sequences=True, name="gru")(layers.Embedding(11, 4, mask_zero=True)(ids))
    source = randomised(keras.Model(ids, layers.Dense(2)(layers.Flatten()(kind()([x, x])))))
    tokens = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [5, 6, 7, 8, 9]])
    structure = analyse(source)
    assert structure.widths["gru"] == COMPARED
    same(outputs(source, [tokens]), outputs(narrow(structure, {}), [tokens]))


def test_multiply_adds_match_values_computed_by_hand():
    for attention in KINDS.values():
        layers_by_name = {
            layer.name: layer for layer in analyse(of_three(attention)(unmasked)).network().layers
        }
        assert layers_by_name["attention"].multiply_adds == QUERIES * KEYS * (COMPARED + VALUES)


def test_a_causal_mask_stays():
    inputs = keras.Input((KEYS, 3))
    x = layers.Dense(COMPARED, name="dense")(inputs)
    x = layers.Attention(name="attention")([x, x], use_causal_mask=True)
    source = randomised(keras.Model(inputs, layers.Dense(3)(x)))
    small = narrow(analyse(source), {})
    rows = batch(source)
    same(outputs(source, rows), outputs(small, rows))
    later = [rows[0].copy()]
    later[0][:, -1] += 1
    same([outputs(small, rows)[0][:, :-1]], [outputs(small, later)[0][:, :-1]])


def test_attention_over_several_axes_is_refused():
    inputs = keras.Input((2, KEYS, 3))
    with pytest.raises(UnsupportedLayerError, match="'attention' attends over more than one axis"):
        analyse(keras.Model(inputs, layers.Attention(name="attention")([inputs, inputs])))
