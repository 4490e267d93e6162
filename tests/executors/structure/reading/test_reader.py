import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, copied, narrow
from executors.structure.reading.reader import read_graph
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_fold,
    check_narrow,
    check_widen,
    conv,
    head,
    outputs,
    randomised,
    same,
    unmasked,
)

layers = keras.layers


def backbone(mask, name="backbone"):
    """Return a functional model with its own layer names, to be nested in others."""
    inputs = keras.Input((6, 6, 4))
    x = mask(f"{name}_inner", layers.Conv2D(5, 3, padding="same", activation="relu", name="inner")(inputs))
    x = layers.Conv2D(6, 3, padding="same", name="outer")(x)
    return keras.Model(inputs, layers.BatchNormalization(name="bn")(x), name=name)


def nested(mask):
    inputs = keras.Input((6, 6, 3))
    x = mask("stem", conv(4, "stem")(inputs))
    x = mask("backbone_outer", layers.ReLU()(backbone(mask)(x)))
    return keras.Model(inputs, head(x))


def nested_as_output(mask):
    inputs = keras.Input((6, 6, 3))
    return keras.Model(inputs, backbone(mask)(mask("stem", conv(4, "stem")(inputs))))


def two_levels(mask):
    inner = keras.Input((6, 6, 4))
    x = backbone(lambda group, tensor, repeat=None: mask(f"middle_{group}", tensor))(inner)
    middle = keras.Model(
        inner, layers.Conv2D(5, 1, name="c")(mask("middle_backbone_outer", x)), name="middle"
    )
    inputs = keras.Input((6, 6, 3))
    x = middle(mask("stem", conv(4, "stem")(inputs)))
    return keras.Model(inputs, head(mask("middle_c", x)))


def sequential_inside(mask):
    steps = [keras.Input((6, 6, 4)), layers.Conv2D(5, 3, activation="relu", name="a")]
    tower = keras.Sequential(steps, name="tower")
    inputs = keras.Input((6, 6, 3))
    x = mask("tower_a", tower(mask("stem", conv(4, "stem")(inputs))))
    return keras.Model(inputs, head(x))


def called_twice(mask):
    """Apply one encoder to two inputs: its weights, and so its groups, are shared."""
    shared = backbone(mask)
    left, right = keras.Input((6, 6, 4)), keras.Input((6, 6, 4))
    x, y = (mask("backbone_outer", shared(side)) for side in (left, right))
    return keras.Model([left, right], head(layers.Concatenate()([x, y])))


def in_series(mask):
    """Apply a nested model to its own output."""
    inner = keras.Input((5, 5, 4))
    x = mask("block_a", layers.Conv2D(6, 3, padding="same", activation="relu", name="a")(inner))
    block = keras.Model(inner, layers.Conv2D(4, 1, name="b")(x), name="block")
    inputs = keras.Input((5, 5, 3))
    x = mask("stem", layers.Conv2D(4, 1, name="stem")(inputs))
    for _ in range(2):
        x = mask("stem", block(x))
    return keras.Model(inputs, head(x))


def layer_of_two_models(mask):
    """Use the same layer inside a nested model and outside: one layer, one group."""
    shared = layers.Dense(6, activation="relu", name="shared")
    inner = keras.Input((4,))
    side = keras.Model(inner, layers.Dense(3, name="side_out")(mask("shared", shared(inner))), name="side")
    inputs = keras.Input((4,))
    x = layers.Dense(3, name="main_out")(mask("shared", shared(inputs)))
    return keras.Model(inputs, [x, side(inputs)])


def dictionary_inputs(mask):
    a, b = keras.Input((4,), name="a"), keras.Input((5,), name="b")
    x = mask("da", layers.Dense(6, activation="relu", name="da")(a))
    y = mask("db", layers.Dense(5, activation="relu", name="db")(b))
    inner_a, inner_b = keras.Input((5,), name="y"), keras.Input((6,), name="x")
    joined = layers.Concatenate()([layers.Dense(2, name="p")(inner_a), inner_b])
    merge = keras.Model({"y": inner_a, "x": inner_b}, joined, name="merge")
    x = merge({"y": y, "x": x})
    x = mask("merge_p", x, lambda kept: np.r_[kept, np.ones(6, bool)])
    return keras.Model({"b": b, "a": a}, layers.Dense(3)(x))


def dictionary_for_a_list(mask):
    """Pass a dictionary in another order than the nested model's inputs, with an additional key."""
    x, y = keras.Input((5,), name="x"), keras.Input((5,), name="y")
    inner_y, inner_x = keras.Input((6,), name="y"), keras.Input((6,), name="x")
    difference = layers.Dense(2, name="p")(layers.Subtract()([inner_y, inner_x]))
    nested = keras.Model([inner_y, inner_x], difference, name="nested")
    made = mask("dy", layers.Dense(6, activation="relu", name="dx")(x))
    other = mask("dy", layers.Dense(6, activation="relu", name="dy")(y))
    joined = layers.Concatenate()([nested({"x": made, "y": other}), made])
    joined = mask("nested_p", joined, lambda kept: np.r_[kept, np.ones(6, bool)])
    joined = mask("dy", joined, lambda kept: np.r_[np.ones(2, bool), kept])
    return keras.Model([x, y], layers.Dense(3)(joined))


def several_outputs(mask):
    inputs, other = keras.Input((6, 6, 3), name="image"), keras.Input((4,), name="facts")
    x = mask("a", conv(5, "a")(inputs))
    pooled = layers.GlobalAveragePooling2D()(x)
    facts = mask("f", layers.Dense(6, activation="relu", name="f")(other))
    features = layers.Dense(4, name="features")(layers.Concatenate()([pooled, facts]))
    return keras.Model(
        [inputs, other], [features, layers.Dense(3, name="logits")(features), pooled_sum(pooled)]
    )


def pooled_sum(pooled):
    return layers.Dense(1, name="score")(pooled)


def shared_reshape(mask):
    """Use one Reshape for two tensors that are then cut to different widths."""
    inputs = keras.Input((5,))
    reshape, act = layers.Reshape((1, 6)), layers.ReLU()
    x = mask("a", reshape(act(layers.Dense(6, name="a")(inputs))))
    y = mask("b", reshape(act(layers.Dense(6, name="b")(inputs))))
    x, y = layers.Dense(3, name="x")(x), layers.Dense(3, name="y")(y)
    return keras.Model(inputs, layers.Add()([x, y]))


def operations(mask):
    inputs = keras.Input((6, 6, 3))
    ops = keras.ops
    x = mask("a", ops.relu(conv(5, "a")(inputs) * 2.0 - 0.5))
    y = mask("a", ops.tanh(layers.Conv2D(5, 1, name="b")(inputs)))
    x = mask("a", ops.sigmoid(1.0 - (x + y)) * x)
    x = ops.concatenate([x / 2.0, mask("c", layers.Conv2D(4, 1, name="c")(inputs))], axis=-1)
    return keras.Model(inputs, head(x))


NETWORKS = {
    nested: {"stem": 4, "backbone_inner": 5, "backbone_outer": 6},
    nested_as_output: {"stem": 4, "backbone_inner": 5},
    two_levels: {"stem": 4, "middle_backbone_inner": 5, "middle_backbone_outer": 6, "middle_c": 5},
    sequential_inside: {"stem": 4, "tower_a": 5},
    called_twice: {"backbone_inner": 5, "backbone_outer": 6},
    in_series: {"stem": 4, "block_a": 6},
    layer_of_two_models: {"shared": 6},
    dictionary_inputs: {"da": 6, "db": 5, "merge_p": 2},
    dictionary_for_a_list: {"dy": 6, "nested_p": 2},
    several_outputs: {"a": 5, "f": 6},
    shared_reshape: {"a": 6, "b": 6},
    operations: {"a": 5, "c": 4},
}


@pytest.mark.parametrize("build", NETWORKS)
def test_nested_models_are_cloned_folded_and_widened(build):
    source = randomised(build(unmasked))
    assert analyse(source).widths == NETWORKS[build]
    check_clone(source)
    check_fold(source)
    check_widen(source)


@pytest.mark.parametrize("build", NETWORKS)
def test_narrowed_equals_masked(build):
    sizes = enumerate(NETWORKS[build].items())
    # Keep two of three units in one group and every other unit in the next, so that equal groups differ.
    check_narrow(build, {name: np.arange(size) % (3 - i % 2) != 1 for i, (name, size) in sizes})


def sequential_model():
    steps = [
        keras.Input((6, 6, 3)),
        layers.Conv2D(5, 3, name="a"),
        layers.BatchNormalization(),
        layers.ReLU(),
    ]
    return randomised(keras.Sequential([*steps, layers.Flatten(), layers.Dense(3)]))


def test_a_sequential_model_is_read():
    source = sequential_model()
    assert analyse(source).widths == {"a": 5}
    check_clone(source)
    check_widen(source)
    check_fold(source)
    keep = alternate(5)
    small = narrow(analyse(source), {"a": keep})
    inputs = batch(source)
    hidden = np.asarray(keras.Sequential(source.layers[:3])(inputs[0])) * keep
    same([np.asarray(source.layers[4](source.layers[3](hidden)))], outputs(small, inputs))


def test_a_model_that_overrides_only_the_constructor_is_read():
    class Small(keras.Model):
        def __init__(self):
            inputs = keras.Input((4,))
            super().__init__(inputs, layers.Dense(3)(layers.Dense(5, name="hidden")(inputs)))

    assert analyse(randomised(Small())).widths == {"hidden": 5}


def test_a_sequential_model_without_shape_is_refused():
    with pytest.raises(TypeError, match="never built"):
        analyse(keras.Sequential([layers.Dense(3)]))


def test_an_unknown_operation_is_refused():
    inputs = keras.Input((4, 3))
    model = keras.Model(inputs, keras.ops.sort(layers.Dense(5)(inputs), axis=1))
    with pytest.raises(UnsupportedLayerError, match=r"'sort\w*' is a .*Sort.*register\(Sort\)"):
        analyse(model)


def test_operations_on_tensors_of_different_rank_are_not_replaced_by_a_layer():
    inputs = keras.Input((3, 3))
    row = layers.GlobalAveragePooling1D()(layers.Dense(3, name="stays")(inputs))
    model = keras.Model(inputs, layers.Dense(4)(inputs + row))
    assert analyse(model).widths == {}
    check_clone(model)


def test_a_layer_with_two_outputs_is_refused():
    class Two(layers.Layer):
        def call(self, inputs):
            return inputs, inputs

        def compute_output_spec(self, inputs):
            return [keras.KerasTensor(inputs.shape, inputs.dtype) for _ in range(2)]

    inputs = keras.Input((4, 3))
    first, _ = Two(name="two")(inputs)
    with pytest.raises(TypeError, match=r"layer two .* has 2 outputs; expected 1"):
        read_graph(keras.Model(inputs, first))


def test_colliding_names_are_made_unique():
    inner = keras.Input((4,))
    tower = keras.Model(inner, layers.Dense(5, name="x")(inner), name="tower")
    inputs = keras.Input((3,))
    model = keras.Model(inputs, layers.Dense(2)(tower(layers.Dense(4, name="tower_x")(inputs))))
    assert analyse(randomised(model)).widths == {"tower_x": 4, "tower_x_2": 5}
    check_clone(model)


def test_the_graph_lists_every_call_once():
    inputs = keras.Input((4,), name="given")
    shared = layers.Dense(4, name="shared")
    graph = read_graph(keras.Model(inputs, shared(shared(inputs)), name="net"))
    assert [node.name for node in graph.nodes] == ["shared", "shared"]
    assert graph.inputs == {0: "given"}
    assert graph.shapes == ((None, 4),) * 3
    assert [node.inputs for node in graph.nodes] == [(0,), (1,)]
    assert graph.outputs == (2,)


def test_a_normalization_layer_keeps_its_adapted_statistics():
    norm = layers.Normalization(name="norm")
    norm.adapt(np.random.default_rng(0).normal(3.0, 2.0, (64, 4)))
    inputs = keras.Input((4,))
    source = keras.Model(inputs, layers.Dense(3)(layers.Dense(5, name="a")(norm(inputs))))
    values = batch(source)
    same(outputs(source, values), outputs(copied(source), values))
    check_clone(source)
    check_widen(source)
    check_fold(source)
