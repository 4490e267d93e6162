"""Splitting models into shared first layers and the rest."""

import keras
import numpy as np
import pytest

from executors.structure import analyse, freeze, narrow, shareable_base, split, widen
from executors.structure.reading.reader import read_graph
from tests.executors.structure.networks import batch, outputs, randomised

layers = keras.layers


def residual():
    """Return a stem, two residual blocks, and a head."""
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", use_bias=False, name="stem")(inputs)
    x = layers.ReLU(name="stem_relu")(layers.BatchNormalization(name="stem_norm")(x))
    for number in (1, 2):
        y = layers.Conv2D(6, 3, padding="same", activation="relu", name=f"in_{number}")(x)
        y = layers.Conv2D(4, 3, padding="same", name=f"out_{number}")(y)
        x = layers.Add(name=f"add_{number}")([x, y])
    return keras.Model(inputs, layers.Dense(5, name="head")(layers.Flatten(name="flat")(x)))


def masked():
    """Return blocks of attention with a mask computed from the inputs."""
    inputs = keras.Input((6,), dtype="int32", name="tokens")
    there = keras.ops.not_equal(inputs, 0)
    x = layers.Embedding(9, 8, name="embedding")(inputs)
    for number in (1, 2):
        y = layers.MultiHeadAttention(2, 4, name=f"attention_{number}")(
            x, x, attention_mask=keras.ops.expand_dims(there, 1)
        )
        x = layers.Add(name=f"add_{number}")([x, y])
    return keras.Model(inputs, layers.Dense(3, name="head")(x))


def shared_layer():
    """Return a network with a convolution that is called in the first half and again in the second."""
    inputs = keras.Input((8, 8, 4))
    again = layers.Conv2D(4, 3, padding="same", name="again")
    x = layers.Conv2D(4, 3, padding="same", name="between")(again(inputs))
    return keras.Model(inputs, layers.Dense(2, name="head")(layers.Flatten()(again(x))))


STEM = ("stem", "stem_norm", "stem_relu")
BLOCK = ("in_1", "out_1", "add_1")


@pytest.mark.parametrize(
    ("most", "base"),
    [
        (64 * 9 * 3 * 4 - 1, ()),
        (64 * 9 * 3 * 4, STEM),
        (64 * 9 * (3 * 4 + 2 * 4 * 6) - 1, STEM),
        (64 * 9 * (3 * 4 + 2 * 4 * 6), STEM + BLOCK),
    ],
)
def test_the_base_ends_before_the_layer_that_exceeds_the_share(most, base):
    assert shareable_base(analyse(residual()), most) == base


def test_the_base_never_ends_in_the_middle_of_a_block():
    structure = analyse(residual())
    ends = {shareable_base(structure, most)[-1:] for most in range(0, structure.network().flops, 500)}
    assert ends == {(), ("stem_relu",), ("add_1",), ("flat",)}


def test_masks_computed_from_the_inputs_may_bypass_the_base():
    structure = analyse(masked())
    assert shareable_base(structure, 0.97 * structure.network().flops)[-1] == "add_2"


def test_a_layer_that_is_called_later_again_is_not_part_of_the_base():
    structure = analyse(shared_layer())
    bases = {shareable_base(structure, most) for most in range(0, structure.network().flops, 1_000)}
    assert all("again" not in base or "between" in base for base in bases)
    assert () in bases


@pytest.mark.parametrize("build", [residual, masked])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_base_and_rest_together_compute_the_same_as_the_model(build, share):
    model = randomised(build())
    structure = analyse(model)
    base = shareable_base(structure, share * structure.network().flops)
    first, rest = split(structure.graph, base)
    arrays = [np.abs(3 * array).astype(model.inputs[0].dtype) for array in batch(model)]
    passed = outputs(first.build(lambda _, layer: layer, {}), arrays) if base else arrays
    actual = outputs(rest.build(lambda _, layer: layer, {}), passed)
    np.testing.assert_allclose(actual, outputs(model, arrays), atol=1e-5)


def test_frozen_layers_are_not_changed():
    model = randomised(residual())
    freeze(model, STEM)
    structure = analyse(model)
    assert structure.widths == {"in_1": 6, "in_2": 6}, "the stem's channels pass through every block"
    keep = {name: np.arange(6) < 2 for name in structure.widths}
    for changed in (narrow(structure, keep), widen(structure, 2.0)):
        assert [layer.name for layer in changed.layers if not layer.trainable and layer.weights] == [
            *STEM[:2]
        ]
        for name in STEM[:2]:
            for before, after in zip(
                model.get_layer(name).get_weights(), changed.get_layer(name).get_weights(), strict=True
            ):
                np.testing.assert_array_equal(before, after)


def test_layers_frozen_before_stay_frozen():
    model = residual()
    model.get_layer("in_2").trainable = False
    freeze(model, STEM)
    assert {layer.name for layer in model.layers if not layer.trainable} == {*STEM, "in_2"}


def test_a_model_of_only_the_base_has_the_graph_of_the_first_calls():
    structure = analyse(residual())
    first, rest = split(structure.graph, STEM)
    assert [node.name for node in read_graph(first.build(lambda _, layer: layer, {})).nodes] == [*STEM]
    assert rest.inputs.keys() == set(first.outputs)
