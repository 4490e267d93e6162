import keras
import numpy as np
import pytest

from executors.structure import LayerHandler, Role, UnsupportedLayerError, analyse, narrow, register
from executors.structure.handlers.base import HANDLERS
from tests.executors.structure.architectures import FAMILIES
from tests.executors.structure.networks import (
    alternate,
    batch,
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


@pytest.mark.parametrize("family", FAMILIES)
def test_the_multiply_adds_of_operators_add_up_to_those_of_their_layers(family):
    """Latency is predicted from operators, while multiply-adds are counted by layers."""
    build, _ = FAMILIES[family]
    network = analyse(build(unmasked)).network()
    assert sum(operation.multiply_adds for operation in network.operations) == network.flops > 0


def test_a_residual_group_has_slots_in_all_tied_layers():
    inputs = keras.Input((4, 4, 3))
    x = layers.Conv2D(4, 3, padding="same", name="stem")(inputs)
    y = layers.BatchNormalization(name="bn")(layers.Conv2D(4, 3, padding="same", name="branch")(x))
    group = analyse(keras.Model(inputs, head(layers.Add()([x, y])))).groups["stem"]
    places = {(slot.layer, slot.weight, slot.axis): slot.role for slot in group.slots}
    assert places == {
        ("stem", 0, 3): Role.MAKES,
        ("stem", 1, 0): Role.MAKES,
        ("branch", 0, 2): Role.SUMS,
        ("branch", 0, 3): Role.MAKES,
        ("branch", 1, 0): Role.MAKES,
        **{("bn", index, 0): Role.PASSES for index in range(4)},
        ("logits", 0, 0): Role.SUMS,
    }
    assert all(slot.positions.tolist() == [[0], [1], [2], [3]] for slot in group.slots)


def test_concatenated_groups_are_adjacent_in_the_next_layer():
    inputs = keras.Input((4, 4, 1))
    a, b = layers.Conv2D(2, 1, name="a")(inputs), layers.Conv2D(3, 1, name="b")(inputs)
    groups = analyse(keras.Model(inputs, head(layers.Concatenate()([a, inputs, b])))).groups
    place = {name: group.slots[-1].positions.ravel().tolist() for name, group in groups.items()}
    assert place == {"a": [0, 1], "b": [3, 4, 5]}


def test_flattened_channels_occur_once_per_position():
    inputs = keras.Input((2, 2, 1))
    x = layers.Flatten()(layers.Conv2D(3, 1, name="a")(inputs))
    slot = analyse(keras.Model(inputs, layers.Dense(2)(x))).groups["a"].slots[-1]
    assert slot.positions.tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_a_sum_of_part_of_the_channels_splits_the_group():
    """Four of eight channels are tied to `a`, and the other four to `b`."""

    def build(mask):
        inputs = keras.Input((5,))
        a = mask("a", layers.Dense(4, name="a")(inputs))
        b = mask("b", layers.Dense(3, name="b")(inputs))
        c = layers.Dense(7, name="c")(inputs)
        c = mask("a", c, lambda kept: np.r_[kept, np.ones(3, bool)])
        c = mask("b", c, lambda kept: np.r_[np.ones(4, bool), kept])
        return keras.Model(inputs, layers.Dense(2)(layers.Add()([layers.Concatenate()([a, b]), c])))

    structure, _ = check_narrow(build, {"a": alternate(4), "b": alternate(3)})
    assert structure.widths == {"a": 4, "b": 3}


def test_two_groups_of_one_layer_have_different_names():
    inputs = keras.Input((5,))
    c = layers.Dense(7, name="c")(inputs)
    joined = layers.Concatenate()([layers.Dense(4, name="x")(inputs), layers.Dense(3, name="y")(inputs)])
    reader = layers.Dense(2)(layers.Maximum()([c, joined]))
    assert analyse(keras.Model(inputs, reader)).widths == {"c": 4, "c#2": 3}


def test_the_widths_of_inputs_and_outputs_are_fixed():
    inputs = keras.Input((4,))
    x = layers.Dense(4, name="tied_to_input")(inputs)
    x = layers.Add()([x, inputs])
    y = layers.Dense(3, name="tied_to_output")(x)
    z = layers.Add()([y, layers.Dense(3, name="output")(x)])
    assert analyse(keras.Model(inputs, z)).widths == {}


@pytest.mark.parametrize("how", ["layer", "activation", "option", "operation", "callable"])
def test_channels_before_a_softmax_are_fixed(how):
    inputs = keras.Input((4,))
    x = layers.Dense(5, activation="softmax" if how == "option" else None, name="mixed")(inputs)
    if how == "layer":
        x = layers.Softmax()(x)
    elif how == "activation":
        x = layers.Activation("softmax")(x)
    elif how == "callable":
        x = layers.Activation(lambda tensor: tensor / keras.ops.sum(tensor, axis=-1, keepdims=True))(x)
    elif how == "operation":
        x = keras.ops.softmax(x)
    model = keras.Model(inputs, layers.Dense(2)(layers.Dense(6, name="free")(x)))
    assert analyse(model).widths == {"free": 6}


class Doubled(layers.Layer):
    """An unknown layer with a call that cannot be traced."""

    def build(self, input_shape):
        self.factor = self.add_weight(name="factor", shape=(), initializer="ones")

    def call(self, inputs):
        return self.factor * inputs

    def compute_output_shape(self, input_shape):
        return input_shape


def doubled(mask):
    inputs = keras.Input((4,))
    x = mask("a", layers.Dense(5, activation="relu", name="a")(inputs))
    return keras.Model(inputs, layers.Dense(2)(Doubled(name="mine")(x)))


@pytest.fixture
def registration():
    """Remove handlers that a test registers."""
    before = dict(HANDLERS)
    yield
    HANDLERS.clear()
    HANDLERS.update(before)


@pytest.mark.usefixtures("registration")
def test_an_unknown_layer_is_refused_until_a_handler_is_registered():
    message = r"layer 'mine' is a .*Doubled, .* weights of its own \(factor\); register .*register\(Doubled\)"
    with pytest.raises(UnsupportedLayerError, match=message):
        analyse(doubled(unmasked))

    @register(Doubled)
    class DoubledHandler(LayerHandler):
        """A handler that passes channels on."""

        def couple(self, node, inputs, output, space):
            """Pass the channels on."""
            return inputs[0]

    check_narrow(doubled, {"a": alternate(5)})
    check_widen(randomised(doubled(unmasked)))


@pytest.mark.usefixtures("registration")
def test_an_operation_can_be_given_a_handler():
    inputs = keras.Input((4,))
    ordered = keras.ops.sort(layers.Dense(5, name="a")(inputs), axis=0)
    source = randomised(keras.Model(inputs, layers.Dense(2)(ordered)))
    operation = next(node for node in source.operations if node.name.startswith("sort"))

    @register(type(operation))
    class Sort(LayerHandler):
        """A handler for sorting along the batch, which passes channels on."""

        def couple(self, node, inputs, output, space):
            """Pass the channels on."""
            return inputs[0]

    check_widen(source)
    keep = alternate(5)
    small = narrow(analyse(source), {"a": keep})
    arrays = batch(source)
    hidden = np.sort(np.asarray(source.get_layer("a")(arrays[0])), axis=0) * keep
    same([np.asarray(source.layers[-1](hidden))], outputs(small, arrays))


def test_a_subclass_of_a_known_layer_is_unknown():
    class MyDense(layers.Dense):
        pass

    inputs = keras.Input((4,))
    with pytest.raises(UnsupportedLayerError, match=r"'odd' is a .*MyDense"):
        analyse(keras.Model(inputs, MyDense(3, name="odd")(inputs)))


@pytest.mark.parametrize(
    "layer",
    [
        layers.MaxPooling2D(data_format="channels_first", name="odd"),
        layers.Conv2D(4, 1, data_format="channels_first", name="odd"),
        layers.Flatten(data_format="channels_first", name="odd"),
        layers.BatchNormalization(axis=1, name="odd"),
        layers.LayerNormalization(axis=(2, 3), name="odd"),
    ],
)
def test_channels_on_another_axis_than_the_last_are_refused(layer):
    inputs = keras.Input((4, 4, 4))
    with pytest.raises(UnsupportedLayerError, match="layer 'odd'"):
        analyse(keras.Model(inputs, layer(inputs)))


def test_concatenation_along_the_batch_is_refused():
    inputs = keras.Input((4,))
    with pytest.raises(UnsupportedLayerError, match="'odd' concatenates along the batch"):
        analyse(keras.Model(inputs, layers.Concatenate(axis=0, name="odd")([inputs, inputs])))


def test_networks_with_free_sizes_can_be_cut_but_have_no_costs():
    def build(mask):
        inputs = keras.Input((None, None, 3), name="image")
        return keras.Model(inputs, head(mask("a", conv(5, "a")(inputs))))

    source = randomised(build(unmasked))
    structure = analyse(source)
    small = narrow(structure, {"a": alternate(5)})
    inputs = [np.random.default_rng(0).normal(size=(2, 7, 5, 3)).astype("float32")]
    masked = build(
        lambda g, tensor, r=None: layers.Rescaling(alternate(5).astype("float32").tolist())(tensor)
    )
    masked.set_weights(source.get_weights())
    same(outputs(masked, inputs), outputs(small, inputs))
    with pytest.raises(UnsupportedLayerError, match=r"'image' has the shape \(None, None, None, 3\)"):
        structure.network()


def test_a_constant_scale_for_each_channel_fixes_the_width():
    inputs = keras.Input((4,))
    x = layers.Rescaling([1.0, 2.0, 3.0])(layers.Dense(3, name="a")(inputs))
    assert analyse(keras.Model(inputs, layers.Dense(2)(x))).widths == {}


def test_transposed_channels_are_fixed():
    inputs = keras.Input((4, 3))
    x = layers.Permute((2, 1))(layers.Dense(5, name="a")(inputs))
    assert analyse(keras.Model(inputs, layers.Dense(2)(layers.Dense(6, name="b")(x)))).widths == {"b": 6}


def test_a_reshape_across_channels_fixes_the_width():
    inputs = keras.Input((4, 3))
    x = layers.Reshape((3, 4))(layers.Dense(3, name="a")(inputs))
    source = keras.Model(inputs, layers.Dense(2)(layers.Dense(5, name="b")(x)))
    assert analyse(source).widths == {"b": 5}
    check_widen(randomised(source))
