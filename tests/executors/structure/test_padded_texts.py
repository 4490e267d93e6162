"""Padded texts: layers pass on the mask of an embedding, operations drop it."""

import keras
import numpy as np
import pytest

from executors.structure import analyse, narrow, with_finite_means
from tests.executors.structure.networks import alternate, randomised, same

layers = keras.layers
WORDS, LENGTH, WIDTH = 11, 6, 8


def texts():
    """Return token ids [5, LENGTH], with texts of different lengths padded with 0."""
    ids = np.random.default_rng(0).integers(1, WORDS, (5, LENGTH))
    return np.where(np.arange(LENGTH) < np.arange(2, 7)[:, None], ids, 0)


def embedded(name="embedding"):
    return layers.Embedding(WORDS, WIDTH, mask_zero=True, name=name)


def classified(x):
    return layers.Dense(3, name="class")(layers.GlobalAveragePooling1D()(x))


def attending(ids):
    x = embedded()(ids) * WIDTH**0.5
    return classified(layers.MultiHeadAttention(2, 4, name="attention")(x, x))


def activated(ids):
    return classified(keras.ops.relu(embedded()(ids)))


def added(ids):
    return classified(embedded()(ids) + embedded("other")(ids))


def masked(ids):
    return classified(layers.Activation("tanh")(embedded()(ids)))


def recurrent(ids):
    x = layers.LSTM(7, return_sequences=True, name="lstm")(embedded()(ids))
    return layers.Dense(3, name="class")(layers.GRU(5, name="gru")(x))


def both_ways(ids):
    return layers.Dense(3, name="class")(layers.Bidirectional(layers.LSTM(6), name="both")(embedded()(ids)))


def tower(*steps, name="tower"):
    """Return a nested model that processes a sequence."""
    inputs = x = keras.Input((LENGTH, WIDTH))
    for step in steps:
        x = step(x)
    return keras.Model(inputs, x, name=name)


def nested(ids):
    return classified(tower(layers.LSTM(7, return_sequences=True, name="lstm"))(embedded()(ids)))


def nested_with_an_operation(ids):
    """Return a model in which layers after the operation, inside the nested model, use the padding mask."""
    steps = keras.ops.relu, layers.LSTM(WIDTH, name="lstm"), layers.Dense(3)
    return tower(*steps)(embedded()(ids))


def nested_sequential(ids):
    steps = [keras.Input((LENGTH, WIDTH)), layers.Dropout(0.1), layers.LSTM(7, name="lstm")]
    return layers.Dense(3, name="class")(keras.Sequential(steps, name="tower")(embedded()(ids)))


def nested_twice(ids):
    inner = tower(layers.Activation("tanh"), layers.GRU(WIDTH, return_sequences=True), name="inner")
    return classified(tower(inner, layers.LSTM(7, return_sequences=True))(embedded()(ids)))


def nested_with_two_texts(ids):
    """Return a nested model with two texts, of which only one is padded."""
    inputs = [keras.Input((LENGTH, WIDTH)), keras.Input((LENGTH, WIDTH))]
    x = layers.Concatenate()([layers.LSTM(7)(inputs[0]), layers.GRU(5)(inputs[1])])
    both = keras.Model(inputs, x, name="tower")
    plain = layers.Embedding(WORDS, WIDTH, name="plain")
    return layers.Dense(3, name="class")(both([embedded()(ids), plain(ids)]))


NESTED = [nested, nested_with_an_operation, nested_sequential, nested_twice, nested_with_two_texts]


def network(outputs):
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    return randomised(keras.Model(ids, outputs(ids)))


@pytest.mark.parametrize("outputs", [attending, activated, added, masked, recurrent, both_ways, *NESTED])
def test_a_flat_copy_treats_padding_like_its_model(outputs):
    source = network(outputs)
    same([np.asarray(source(texts()))], [np.asarray(narrow(analyse(source), {})(texts()))])


@pytest.mark.parametrize("outputs", [attending, activated, added])
def test_an_embedding_with_a_mask_dropped_by_operations_is_narrowed(outputs):
    source = network(outputs)
    structure = analyse(source)
    (group,) = (name for name in structure.groups if name.startswith("embedding"))
    keep = alternate(WIDTH)
    for layer in source.layers:
        if isinstance(layer, layers.Embedding):
            layer.embeddings.assign(np.asarray(layer.embeddings) * keep)
    same([np.asarray(source(texts()))], [np.asarray(narrow(structure, {group: keep})(texts()))])


def test_a_recurrent_layer_that_skips_padding_is_narrowed():
    source = network(recurrent)
    lstm, keep = source.get_layer("lstm"), alternate(7)
    for kernel in (lstm.cell.recurrent_kernel, source.get_layer("gru").cell.kernel):
        kernel.assign(np.asarray(kernel) * keep[:, None])
    same([np.asarray(source(texts()))], [np.asarray(narrow(analyse(source), {"lstm": keep})(texts()))])


def test_a_padded_text_is_read_from_the_state_after_another():
    asked, told = (keras.Input((LENGTH,), dtype="int32", name=name) for name in ("asked", "told"))
    _, state = layers.GRU(7, return_state=True, name="encoder")(embedded()(asked))
    x = layers.GRU(7, name="decoder")(embedded("other")(told), initial_state=state)
    source = randomised(keras.Model([asked, told], layers.Dense(3, name="class")(x)))
    ids, keep = [texts()[::-1], texts()], alternate(7)
    same([np.asarray(source(ids))], [np.asarray(narrow(analyse(source), {})(ids))])
    # Neither the answer nor other units depend on those that are cut.
    encoder, decoder = (source.get_layer(name).cell for name in ("encoder", "decoder"))
    for kernel in (encoder.recurrent_kernel, decoder.recurrent_kernel, source.get_layer("class").kernel):
        kernel.assign(np.asarray(kernel) * keep[:, None])
    same([np.asarray(source(ids))], [np.asarray(narrow(analyse(source), {"encoder": keep})(ids))])


@pytest.mark.parametrize("keepdims", [False, True])
def test_the_mean_over_an_empty_text_is_zero(keepdims):
    """Keras divides zero by zero; all other texts give the same output."""
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    mean = layers.GlobalAveragePooling1D(keepdims=keepdims)(embedded()(ids))
    source = randomised(keras.Model(ids, layers.Dense(3, name="class")(mean)))
    finite, read = with_finite_means(source), texts()
    read[2] = 0
    expected, actual = (model.predict(read, verbose=0) for model in (source, finite))
    assert np.isnan(expected[2]).all()
    np.testing.assert_allclose(np.delete(actual, 2, 0), np.delete(expected, 2, 0), rtol=1e-6)
    bias = np.broadcast_to(np.asarray(source.get_layer("class").bias), actual[2].shape)
    np.testing.assert_allclose(actual[2], bias, rtol=1e-6)


def test_means_without_a_mask_are_not_changed():
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    source = keras.Model(ids, classified(layers.Embedding(WORDS, WIDTH)(ids)))
    assert with_finite_means(source) is source
