"""Finding and removing residual blocks."""

from collections import Counter

import keras
import numpy as np
import pytest

from executors.structure import analyse, narrow, remove_blocks, residual_blocks
from executors.structure.edits import splitting
from executors.structure.reading.reader import read_graph
from executors.structure.signature import output_names
from mistify.costs.axes import costs_of
from tests.executors.structure.networks import batch, outputs, randomised, same

layers = keras.layers


def convolutions():
    """Return two blocks of two convolutions; the second sum has the other order and uses an operator."""
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", name="stem")(inputs)
    for number in (1, 2):
        y = layers.Conv2D(6, 3, padding="same", activation="relu", name=f"in_{number}")(x)
        y = layers.BatchNormalization(name=f"out_{number}")(
            layers.Conv2D(4, 3, padding="same", name=f"mid_{number}")(y)
        )
        x = layers.ReLU()(layers.Add(name="sum_1")([x, y]) if number == 1 else y + x)
    return keras.Model(inputs, layers.Dense(5, name="head")(layers.Flatten()(x)))


def transformer():
    """Return pre-norm transformer blocks with a mask that all attention layers read."""
    inputs = keras.Input((6,), dtype="int32", name="tokens")
    there = keras.ops.expand_dims(keras.ops.not_equal(inputs, 0), 1)
    x = layers.Embedding(9, 8, name="embedding")(inputs)
    for number in (1, 2):
        y = layers.LayerNormalization(name=f"norm_{number}")(x)
        y = layers.MultiHeadAttention(2, 4, name=f"out_{number}")(y, y, attention_mask=there)
        x = layers.Add(name=f"add_{number}")([x, layers.Dropout(0.1)(y)])
    return keras.Model(inputs, layers.Dense(3, name="head")(x))


def silenced(model, layer):
    """Return the model with a layer that outputs zeros."""
    actual = keras.models.clone_model(model)
    actual.set_weights(model.get_weights())
    for weight in actual.get_layer(layer).weights:
        if "moving" not in weight.path:
            weight.assign(np.zeros(weight.shape))
    return actual


def test_layers_with_a_shortcut_around_them_are_a_block():
    first, second = residual_blocks(read_graph(convolutions()))
    assert first.name == "sum_1"
    assert first.layers == ("in_1", "mid_1", "out_1", "sum_1")
    assert second.layers == ("in_2", "mid_2", "out_2", second.name)


@pytest.mark.parametrize(("build", "size"), [(convolutions, 8), (transformer, 6)])
@pytest.mark.parametrize("removed_blocks", [(0,), (1,), (0, 1)])
def test_removing_a_block_equals_adding_zeros(build, size, removed_blocks):
    model = randomised(build())
    structure = analyse(model)
    blocks = residual_blocks(structure.graph)
    actual = remove_blocks(structure, [blocks[number] for number in removed_blocks])
    shallow = narrow(actual, {})
    inputs = batch(model) if build is convolutions else [np.random.default_rng(1).integers(0, 9, (3, size))]
    expected = model
    for number in removed_blocks:
        expected = silenced(expected, f"out_{number + 1}")
    same(outputs(expected, inputs), outputs(shallow, inputs))
    gone = {name for number in removed_blocks for name in blocks[number].layers}
    assert {layer.name for layer in shallow.layers}.isdisjoint(gone)
    again = analyse(shallow)
    assert costs_of(actual.network(), ()) == costs_of(again.network(), ())
    assert actual.widths == again.widths


def test_blocks_may_contain_blocks():
    inputs = keras.Input((8,))
    x = layers.Dense(8, name="before")(inputs)
    y = layers.Dense(8, name="outer")(x)
    y = layers.Add(name="inner_add")([y, layers.Dense(8, name="inner")(y)])
    x = layers.Add(name="outer_add")([x, y])
    model = keras.Model(inputs, layers.Dense(3, name="head")(x))
    structure = analyse(model)
    blocks = {block.name: block for block in residual_blocks(structure.graph)}
    assert blocks["inner_add"].layers == ("inner", "inner_add")
    assert blocks["outer_add"].layers == ("outer", "inner", "inner_add", "outer_add")
    shallow = narrow(remove_blocks(structure, blocks.values()), {})
    assert [layer.name for layer in shallow.layers[1:]] == ["before", "head"]


def test_layers_with_other_readers_or_another_output_shape_are_not_a_block():
    inputs = keras.Input((8, 8, 4))
    x = layers.Conv2D(4, 3, padding="same")(inputs)
    y = layers.Conv2D(4, 3, padding="same")(x)
    seen = layers.Conv2D(4, 1)(y)
    x = layers.Add(name="seen_elsewhere")([x, y])
    projected = layers.Conv2D(6, 1)(x)
    x = layers.Add(name="projected")([projected, layers.Conv2D(6, 3, padding="same")(x)])
    x = layers.Add(name="no_weights")([x, layers.ReLU()(x)])
    outputs_ = [layers.Flatten()(x), layers.Flatten()(seen)]
    assert residual_blocks(read_graph(keras.Model(inputs, outputs_))) == []


def test_a_block_with_an_output_inside_is_kept():
    inputs = keras.Input((4,))
    x = layers.Dense(4)(inputs)
    y = layers.Dense(4)(x)
    assert residual_blocks(read_graph(keras.Model(inputs, [layers.Add()([x, y]), y]))) == []


def test_a_sum_that_is_an_output_keeps_its_name():
    inputs = keras.Input((4,))
    x = layers.Add(name="first")([inputs, layers.Dense(4)(inputs)])
    x = layers.Add(name="second")([x, layers.Dense(4)(x)])
    model = keras.Model(inputs, [x, layers.Dense(3, name="head")(x)])
    structure = analyse(model)
    (block,) = residual_blocks(structure.graph)
    assert block.name == "first"
    assert output_names(narrow(remove_blocks(structure, [block]), {})) == output_names(model)


def test_the_weights_of_layers_are_read_only_once():
    """However many blocks and split points a network has."""
    asked = Counter()

    class Asked(layers.Dense):
        @property
        def weights(self):
            asked[self.name] += 1
            return super().weights

    x = inputs = keras.Input((4,))
    for number in range(5):
        x = layers.Add()([x, Asked(4, name=f"out_{number}")(Asked(4, name=f"in_{number}")(x))])
    graph = read_graph(keras.Model(inputs, layers.Dense(3)(x)))
    asked.clear()
    assert len(residual_blocks(graph)) == 5
    assert len(splitting.blocks(graph)) == 7
    assert len(asked) == 10
    assert set(asked.values()) == {1}


def test_a_shallower_network_is_narrowed_like_any_other():
    model = randomised(convolutions())
    structure = analyse(model)
    shallow = remove_blocks(structure, residual_blocks(structure.graph)[:1])
    keep = {name: np.arange(group.size) % 2 == 0 for name, group in shallow.groups.items()}
    narrowed = narrow(shallow, keep)
    expected = narrow(analyse(narrow(shallow, {})), keep)
    same(outputs(expected, batch(model)), outputs(narrowed, batch(model)))
    widths = {name: int(mask.sum()) for name, mask in keep.items()}
    assert costs_of(shallow.network(widths), ()) == costs_of(analyse(narrowed).network(), ())
