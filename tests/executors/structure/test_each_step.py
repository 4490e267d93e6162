"""Layers wrapped to be applied at each step of a sequence, although some would do that without a wrapper."""

import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow
from executors.structure.reading.reader import read_graph
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_narrow,
    check_widen,
    outputs,
    randomised,
    same,
    unmasked,
)

layers = keras.layers
STEPS, UNITS, TAGS = 5, 6, 3


def at_each_step(layer, name=None):
    return layers.TimeDistributed(layer, name=name)


def tagged(x, mask):
    x = at_each_step(layers.Dense(UNITS, activation="relu", name="inner"), "hidden")(x)
    x = at_each_step(layers.Dropout(0.5))(at_each_step(layers.LeakyReLU())(mask("hidden", x)))
    return at_each_step(layers.Dense(TAGS, activation="softmax"), "tags")(x)


def tagger(mask):
    inputs = keras.Input((STEPS, 4))
    return keras.Model(inputs, tagged(layers.GRU(7, return_sequences=True, name="gru")(inputs), mask))


def padded(mask):
    ids = keras.Input((STEPS,), dtype="int32")
    x = layers.Embedding(11, 4, mask_zero=True)(ids)
    return keras.Model(ids, tagged(layers.GRU(7, return_sequences=True, name="gru")(x), mask))


def shared(mask):
    """Return one wrapper that two sequences of different lengths share."""
    left, right = keras.Input((STEPS, 4)), keras.Input((3, 4))
    both = at_each_step(layers.Dense(UNITS), "hidden")
    x = layers.Concatenate(axis=1)([mask("hidden", both(left)), mask("hidden", both(right))])
    return keras.Model([left, right], layers.Dense(TAGS)(layers.Flatten()(x)))


@pytest.mark.parametrize("build", [tagger, shared])
def test_cutting_units_equals_masking(build):
    structure, _ = check_narrow(build, {"hidden": alternate(UNITS)})
    assert structure.widths["hidden"] == UNITS
    check_widen(randomised(build(unmasked)))


def test_padding_is_treated_as_before():
    source = randomised(padded(unmasked))
    ids = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [5, 6, 7, 8, 9]])
    flat = narrow(analyse(source), {})
    same([np.asarray(source(ids))], [np.asarray(flat(ids))])
    (tags,) = [node for node in read_graph(source).nodes if node.name == "tags"]
    assert len(tags.inputs) == 1, "a dense layer reads no mask"


def test_a_flat_copy_has_the_names_and_weights_of_its_model():
    source = randomised(tagger(unmasked))
    flat = narrow(analyse(source), {})
    assert flat.output_names == source.output_names == ["tags"]
    for name in ("hidden", "tags"):
        same(source.get_layer(name).get_weights(), flat.get_layer(name).get_weights())
    same(outputs(source, batch(source)), outputs(flat, batch(source)))


@pytest.mark.parametrize("build", [tagger, padded])
def test_costs_match_values_computed_by_hand(build):
    actual = {layer.name: layer for layer in analyse(build(unmasked)).network().layers}
    assert actual["hidden"].multiply_adds == STEPS * 7 * UNITS
    assert actual["tags"].multiply_adds == STEPS * UNITS * TAGS
    assert [operation.read for operation in actual["tags"].operations[:1]] == [STEPS * UNITS]


def test_layers_that_have_to_see_single_steps_are_refused():
    inputs = keras.Input((STEPS, 8, 8, 3))
    x = at_each_step(layers.Conv2D(4, 3), "frames")(inputs)
    with pytest.raises(UnsupportedLayerError, match=r"'frames' is a .*TimeDistributed"):
        analyse(keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x))))
