"""Reshaping: channels are tracked, and a single value per example has no channels."""

import keras
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

#: From [batch] to [batch, 1].
WITH_CHANNEL = {
    "reshape": layers.Reshape((1,)),
    "reshape, what is left": layers.Reshape((-1,)),
    "flatten": layers.Flatten(),
}


@pytest.mark.parametrize("shaping", WITH_CHANNEL.values(), ids=WITH_CHANNEL)
def test_a_single_value_per_example_becomes_a_channel(shaping):
    inputs = keras.Input((), name="given")
    x = layers.Dense(6, activation="relu", name="hidden")(shaping(inputs))
    source = randomised(keras.Model(inputs, layers.Dense(2, name="out")(x)))
    structure, keep = analyse(source), alternate(6)
    assert structure.widths == {"hidden": 6}
    small = narrow(structure, {"hidden": keep})
    kernel, bias = source.get_layer("out").get_weights()
    source.get_layer("out").set_weights([kernel * keep[:, None], bias])
    same(outputs(source, batch(source)), outputs(small, batch(source)))
    same_costs(structure, {"hidden": int(keep.sum())}, small)
    check_widen(source)


def test_a_selected_channel_becomes_a_single_value_and_a_channel_again():
    inputs = keras.Input((5,), name="given")
    x = layers.Dense(6, name="hidden")(inputs)
    x = layers.Reshape((1,))(x[:, 2])
    source = randomised(keras.Model(inputs, layers.Dense(2, name="out")(x)))
    assert analyse(source).widths == {}
    check_clone(source)


def test_a_single_channel_becomes_a_single_value_per_example():
    inputs = keras.Input((5,), name="given")
    hidden = layers.Dense(6, activation="relu", name="hidden")(inputs)
    source = randomised(keras.Model(inputs, layers.Reshape(())(layers.Dense(1, name="score")(hidden))))
    structure = analyse(source)
    assert structure.widths == {"hidden": 6}
    same_costs(structure, {}, narrow(structure, {}))
    check_widen(source)


def test_a_free_last_size_is_refused():
    inputs = keras.Input((None, 3))
    with pytest.raises(UnsupportedLayerError, match=r"'flat' writes the shape \(None, None\)"):
        analyse(keras.Model(inputs, layers.Flatten(name="flat")(inputs)))
