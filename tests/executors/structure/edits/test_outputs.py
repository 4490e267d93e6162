"""A model with some channels of an output computes what the whole model computes for these."""

import keras
import numpy as np
import pytest
from scipy.special import softmax

from executors.structure import analyse
from executors.structure.edits.outputs import FixedOutputError, is_narrowable, narrow_outputs
from executors.structure.signature import Activation, signature_of
from tests.executors.structure.networks import randomised

layers = keras.layers
CHANNELS = [1, 4, 5]


def dense(activation):
    inputs = keras.Input((7,))
    x = layers.Dense(5, activation="relu", name="hidden")(inputs)
    return keras.Model(inputs, layers.Dense(6, activation=activation, name="out")(x))


def apart():
    inputs = keras.Input((7,))
    return keras.Model(inputs, layers.Softmax(name="out")(layers.Dense(6, name="logits")(inputs)))


def convolutional():
    inputs = keras.Input((6, 6, 2))
    x = layers.Conv2D(6, 1, name="logits")(layers.Conv2D(3, 3, name="a")(inputs))
    x = layers.Reshape((6,))(layers.GlobalAveragePooling2D(keepdims=True)(x))
    return keras.Model(inputs, layers.Activation("softmax", name="out")(layers.Dropout(0.2)(x)))


def by_position():
    inputs = keras.Input((6, 6, 2))
    return keras.Model(inputs, layers.Conv2D(6, 3, padding="same", activation="softmax", name="out")(inputs))


def sequential():
    return keras.Sequential([keras.Input((7,)), layers.Dense(6, name="out")])


MODELS = [
    dense("softmax"),
    dense(None),
    dense("sigmoid"),
    apart(),
    convolutional(),
    by_position(),
    sequential(),
]


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
def test_some_channels_are_those_of_the_whole_model(model):
    model = randomised(model)
    inputs = np.random.default_rng(0).normal(size=(8, *model.input_shape[1:])).astype(np.float32)
    expected = model.predict(inputs, verbose=0)[..., CHANNELS]
    cut = narrow_outputs(model, signature_of(model).outputs[0].name, CHANNELS)
    (output,) = signature_of(cut).outputs
    if output.activation is Activation.SOFTMAX:
        expected = expected / expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(cut.predict(inputs, verbose=0), expected, atol=1e-6)
    assert output.shape[-1] == len(CHANNELS)
    assert output.name == signature_of(model).outputs[0].name
    assert analyse(cut).widths == analyse(model).widths
    assert is_narrowable(model, output.name)


def test_channels_keep_the_order_that_is_asked_for():
    model = randomised(dense(None))
    inputs = np.eye(7, dtype=np.float32)
    cut = narrow_outputs(model, "out", [5, 0])
    np.testing.assert_allclose(
        cut.predict(inputs, verbose=0), model.predict(inputs, verbose=0)[:, [5, 0]], atol=1e-6
    )


def test_other_outputs_stay_and_the_model_is_as_it_was():
    inputs = keras.Input((7,))
    x = layers.Dense(5, name="hidden", trainable=False)(inputs)
    outputs = [layers.Dense(6, activation="softmax", name="kind")(x), layers.Dense(2, name="place")(x)]
    model = randomised(keras.Model(inputs, outputs))
    data = np.random.default_rng(0).normal(size=(8, 7)).astype(np.float32)
    kind, place = model.predict(data, verbose=0)
    cut_kind, cut_place = narrow_outputs(model, "kind", CHANNELS).predict(data, verbose=0)
    np.testing.assert_allclose(cut_place, place, atol=1e-6)
    np.testing.assert_allclose(cut_kind, softmax(np.log(kind[:, CHANNELS]), axis=-1), atol=1e-6)
    cut = narrow_outputs(model, "kind", CHANNELS)
    assert not cut.get_layer("hidden").trainable
    assert cut.get_layer("hidden") is not model.get_layer("hidden")
    assert model.get_layer("kind").units == 6


def added():
    inputs = keras.Input((6,))
    return keras.Model(inputs, layers.Add(name="out")([layers.Dense(6)(inputs), inputs]))


def normalised():
    inputs = keras.Input((6,))
    return keras.Model(inputs, layers.BatchNormalization(name="out")(layers.Dense(6)(inputs)))


def flattened():
    inputs = keras.Input((3, 3, 1))
    return keras.Model(inputs, layers.Flatten(name="out")(layers.Conv2D(2, 1)(inputs)))


def read_twice():
    inputs = keras.Input((6,))
    logits = layers.Dense(6, name="logits")(inputs)
    return keras.Model(inputs, [layers.Softmax(name="out")(logits), layers.Dense(2)(logits)])


def shared():
    inputs = [keras.Input((6,)), keras.Input((6,))]
    layer = layers.Dense(6)
    return keras.Model(inputs, [layers.Softmax(name="out")(layer(inputs[0])), layer(inputs[1])])


@pytest.mark.parametrize("make", [added, normalised, flattened, read_twice, shared])
def test_outputs_whose_channels_are_not_apart_are_refused(make):
    with pytest.raises(FixedOutputError):
        narrow_outputs(make(), "out", [0, 1])
    assert not is_narrowable(make(), "out")
