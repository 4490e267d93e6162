"""Layers wrapped to be applied at each step of a sequence, although some would do that without a wrapper."""

import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow
from executors.structure.reading.reader import copied, read_graph
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_fold,
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


def frames(mask):
    """Return a convolution and a batch norm of each frame, then a layer over the frames."""
    inputs = keras.Input((STEPS, 6, 6, 3))
    x = at_each_step(layers.Conv2D(UNITS, 3, use_bias=False), "conv")(inputs)
    x = at_each_step(layers.ReLU())(at_each_step(layers.BatchNormalization(), "norm")(x))
    x = at_each_step(layers.MaxPooling2D(2))(mask("conv", x))
    x = mask("depth", at_each_step(layers.SeparableConv2D(4, 1, activation="relu"), "depth")(x))
    x = at_each_step(layers.Flatten())(x)
    return keras.Model(inputs, layers.Dense(TAGS)(layers.LSTM(7, name="lstm")(x)))


def backbone(mask):
    """Return a residual network with a nested one, of each frame."""
    inner = keras.Input((3, 3, UNITS))
    x = layers.Conv2D(5, 2, activation="relu", name="deep")(inner)
    tail = keras.Model(inner, layers.GlobalAveragePooling2D()(mask("net_tail_deep", x)), name="tail")
    image = keras.Input((6, 6, 3))
    x = mask("net_stem", layers.Conv2D(UNITS, 3, strides=2, padding="same", name="stem")(image))
    y = layers.DepthwiseConv2D(3, padding="same", name="wise")(x)
    y = layers.Conv2D(UNITS, 1, name="back")(layers.ReLU()(layers.BatchNormalization(name="bn")(y)))
    x = tail(layers.Add()([x, mask("net_stem", y)]))
    network = keras.Model(image, x, name="frame")
    inputs = keras.Input((STEPS, 6, 6, 3))
    x = layers.GRU(4, name="gru")(at_each_step(network, "net")(inputs))
    return keras.Model(inputs, layers.Dense(TAGS)(x))


def sentences(mask):
    """Return a recurrent layer over the words of each sentence, and one over the sentences."""
    ids = keras.Input((STEPS, 4, 3))
    x = mask(
        "words",
        at_each_step(layers.Bidirectional(layers.GRU(4)), "words")(ids),
        lambda kept: np.tile(kept, 2),
    )
    return keras.Model(ids, layers.Dense(TAGS)(layers.LSTM(7, name="lstm")(x)))


@pytest.mark.parametrize(
    ("build", "widths"),
    [
        (frames, {"conv": UNITS, "depth": 4}),
        (backbone, {"net_stem": UNITS, "net_tail_deep": 5}),
    ],
)
def test_units_of_layers_that_see_single_steps_are_cut(build, widths):
    keep = {name: alternate(width, place) for place, (name, width) in enumerate(widths.items())}
    structure, small = check_narrow(build, keep)
    assert {name: structure.widths[name] for name in widths} == widths
    assert not any(isinstance(layer, layers.TimeDistributed) for layer in small.layers)
    check_widen(randomised(build(unmasked)))
    check_fold(randomised(build(unmasked)))
    check_clone(randomised(build(unmasked)))


@pytest.mark.parametrize("shape", [[], [keras.Input((6, 6, 3))]])
def test_a_sequential_model_at_each_step_is_cut(shape):
    def build(mask):
        inner = layers.Conv2D(UNITS, 3, activation="relu", name="conv")
        network = keras.Sequential(
            [*shape, inner, layers.Flatten(), layers.Dense(4, name="dense")], name="net"
        )
        inputs = keras.Input((STEPS, 6, 6, 3))
        x = mask("net_dense", at_each_step(network, "net")(inputs))
        return keras.Model(inputs, layers.Dense(TAGS)(layers.GRU(3, name="gru")(x)))

    structure, _ = check_narrow(build, {"net_dense": alternate(4)})
    assert structure.widths == {"net_conv": UNITS, "net_dense": 4, "gru": 3}


class Frame(layers.Layer):
    """A composite layer, for which nobody has registered a handler."""

    def __init__(self, **options):
        super().__init__(**options)
        self.conv = layers.Conv2D(UNITS, 3, activation="relu", name="conv")
        self.pool = layers.GlobalAveragePooling2D(name="pool")

    def build(self, input_shape):
        self.conv.build(input_shape)

    def call(self, inputs):
        return self.pool(self.conv(inputs))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], UNITS)


def test_a_composite_layer_at_each_step_is_cut():
    def build(mask):
        inputs = keras.Input((STEPS, 6, 6, 3))
        x = mask("each_conv", at_each_step(Frame(), "each")(inputs))
        return keras.Model(inputs, layers.Dense(TAGS)(layers.GRU(3, name="gru")(x)))

    structure, _ = check_narrow(build, {"each_conv": alternate(UNITS)})
    assert structure.widths == {"each_conv": UNITS, "gru": 3}


def test_batch_norm_folds_into_a_layer_that_sees_single_steps():
    folded = check_fold(randomised(frames(unmasked)))
    assert not any(isinstance(layer, layers.BatchNormalization) for layer in folded.layers)


def test_recurrent_layers_at_each_step_are_widened_and_cloned():
    source = randomised(sentences(unmasked))
    structure = analyse(source)
    assert structure.widths == {"words": 4, "lstm": 7}
    same(outputs(source, batch(source)), outputs(narrow(structure, {}), batch(source)))
    check_widen(source)
    check_fold(source)


def test_costs_of_layers_that_see_single_steps_match_values_computed_by_hand():
    source = frames(unmasked)
    actual = {layer.name: layer for layer in analyse(source).network().layers}
    assert actual["conv"].multiply_adds == STEPS * 4 * 4 * 3 * UNITS * 9
    assert actual["depth"].multiply_adds == STEPS * 2 * 2 * (UNITS + UNITS * 4)
    assert actual["conv"].operations[1].positions == STEPS * 4 * 4


def test_a_network_at_each_step_is_saved_and_loaded(tmp_path):
    source = narrow(analyse(randomised(backbone(unmasked))), {})
    source.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    same(outputs(source, batch(source)), outputs(loaded, batch(source)))
    same(outputs(source, batch(source)), outputs(copied(source), batch(source)))


def test_a_mask_of_the_words_of_each_step_is_passed_on():
    ids = keras.Input((STEPS, 4), dtype="int32")
    padded = keras.Input((STEPS, 4), dtype="bool")
    x = layers.Embedding(11, 3, name="table")(ids)
    words = at_each_step(layers.GRU(4, name="gru"), "words")(x, mask=padded)
    source = randomised(keras.Model([ids, padded], layers.Dense(TAGS)(layers.Flatten()(words))))
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 11, (3, STEPS, 4)), rng.uniform(size=(3, STEPS, 4)) < 0.6]
    flat = narrow(analyse(source), {})
    same(outputs(source, rows), outputs(flat, rows))
    assert np.abs(outputs(flat, rows)[0] - outputs(flat, [rows[0], ~rows[1]])[0]).max() > 1e-3


def test_one_layer_in_two_wrappers_has_one_set_of_weights():
    kernel = layers.Conv1D(UNITS, 2, name="kernel")
    left, right = keras.Input((STEPS, 4, 3)), keras.Input((2, 4, 3))
    both = [layers.Flatten()(at_each_step(kernel, name)(x)) for name, x in (("a", left), ("b", right))]
    source = randomised(keras.Model([left, right], layers.Dense(TAGS)(layers.Concatenate()(both))))
    structure = analyse(source)
    assert list(structure.widths.values()) == [UNITS]
    assert structure.network().params == source.count_params()


def refused(inputs, x):
    with pytest.raises(UnsupportedLayerError) as caught:
        analyse(keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x))))
    return str(caught.value)


def test_unsupported_layers_at_each_step_are_refused_by_name():
    inputs = keras.Input((2, STEPS, 8, 8, 3))
    reason = refused(inputs, at_each_step(layers.ConvLSTM2D(4, 3), "frames")(inputs))
    assert "'frames' is a keras" in reason
    assert (
        "ConvLSTM2D, which is not supported; expected a TimeDistributed convolution of each frame" in reason
    )


def test_a_layer_at_each_step_and_elsewhere_is_refused():
    kernel = layers.Conv1D(UNITS, 2, name="kernel")
    left, right = keras.Input((STEPS, 4, 3)), keras.Input((4, 3))
    x = layers.Concatenate()(
        [layers.Flatten()(at_each_step(kernel, "a")(left)), layers.Flatten()(kernel(right))]
    )
    assert "applied both to each step of a sequence and to whole examples" in refused([left, right], x)


def test_models_at_each_step_with_masks_or_other_arguments_are_refused():
    ids = keras.Input((4,), dtype="int32")
    masked = keras.Model(ids, layers.GRU(3)(layers.Embedding(9, 4, mask_zero=True, name="table")(ids)))
    image = keras.Input((6, 6, 3))
    sliced = keras.Model(image, layers.Flatten()(image[:, 1:3]))
    words, inputs = keras.Input((STEPS, 4), dtype="int32"), keras.Input((STEPS, 6, 6, 3))
    assert "'each' applies a model to each step, which has masks, in 'table'" in refused(
        words, at_each_step(masked, "each")(words)
    )
    assert "'each' applies a model to each step, which calls 'get_item" in refused(
        inputs, at_each_step(sliced, "each")(inputs)
    )
