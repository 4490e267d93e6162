"""Quantization-aware training, on networks of a few layers."""

import re

import keras
import numpy as np
import pytest
import tf_keras

from executors.data import Dataset
from executors.params import TrainingParams
from executors.structure import analyse, at_resolution, fold_batch_norm, narrow
from executors.tfmot import quantization_aware
from executors.tfmot.quantization import calibrate
from executors.tfmot.translation import translated
from executors.training.setup import TrainingSetup
from mistify.errors import ErrorCode, MistifyError
from tests.executors.structure.networks import randomised

layers = keras.layers


def network(softmax=True):
    inputs = keras.Input((6, 6, 2), name="image")
    x = layers.LeakyReLU(0.1)(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(inputs)))
    y = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x))
    x = layers.GlobalAveragePooling2D()(layers.ReLU(6.0)(layers.Add()([x, y])))
    return randomised(keras.Model(inputs, layers.Dense(3, "softmax" if softmax else None, name="scores")(x)))


def training_setup(model, teacher=False):
    (train, outputs), (test, _) = (labelled(model, seed) for seed in (0, 1))
    params = TrainingParams(batch_size=16, temperature=1.0)
    return TrainingSetup(train, test, {"scores": outputs} if teacher else None, params)


def labelled(model, seed):
    """Images with the classes that the model gives them, and its outputs."""
    x = np.random.default_rng(seed).uniform(size=(120, 6, 6, 2)).astype(np.float32)
    outputs = model.predict(x, verbose=0)
    return Dataset({"image": x}, {"scores": outputs.argmax(axis=1)}), outputs


def test_a_translation_computes_the_same():
    model = network()
    x = training_setup(model).train.inputs["image"][:5]
    actual = translated(fold_batch_norm(model), {"image": x})
    assert isinstance(actual, tf_keras.Model)
    assert not any(isinstance(layer, tf_keras.layers.BatchNormalization) for layer in actual.layers)
    np.testing.assert_allclose(actual.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)


def test_ranges_are_those_of_the_activations():
    model = network(softmax=False)
    aware = quantization_aware(model, training_setup(model), 0, 0)
    x = training_setup(model).train.inputs["image"][np.random.default_rng(0).permutation(120)[:100]]
    ranges = {variable.name: float(variable) for variable in aware.variables if variable.shape.rank == 0}
    scores = model.predict(x, verbose=0)
    assert ranges["quant_scores/post_activation_max:0"] == pytest.approx(max(scores.max(), 0.0), rel=0.05)
    assert ranges["quant_scores/post_activation_min:0"] == pytest.approx(min(scores.min(), 0.0), rel=0.05)
    # Keras numbers the layers of a process.
    (of_images,) = (ranges[name] for name in ranges if re.match(r"quantize_layer\w*/\w+_max", name))
    assert of_images == x.max()


def test_ranges_that_are_right_stay():
    model = network()
    aware = quantization_aware(model, training_setup(model), 0, 0)
    x = training_setup(model).train.inputs["image"][np.random.default_rng(0).permutation(120)[:100]]
    before = [variable.numpy() for variable in aware.variables]
    calibrate(aware, {"image": x})
    for variable, value in zip(aware.variables, before, strict=True):
        np.testing.assert_allclose(variable, value, rtol=0.02, atol=0.02)


@pytest.mark.sampled
@pytest.mark.parametrize("teacher", [False, True])
def test_it_imitates_int8_and_learns(teacher):
    model = network()
    setup = training_setup(model, teacher)
    before, after = (quantization_aware(model, setup, steps, 0) for steps in (0, 30))
    x, y = setup.train.inputs["image"], setup.train.targets["scores"]
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(before.predict(x, verbose=0), expected, atol=0.05)
    target = expected if teacher else np.eye(3)[y]
    losses = [-(target * np.log(aware.predict(x, verbose=0))).sum(axis=1).mean() for aware in (before, after)]
    assert losses[1] < losses[0]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_network():
    model = network()
    first, second, other = (quantization_aware(model, training_setup(model), 3, seed) for seed in (1, 1, 2))
    for left, right in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    kernels = (aware.get_layer("quant_scores").trainable_weights[0].numpy() for aware in (first, other))
    assert not np.array_equal(*kernels)


def chain(*body):
    """A model of eight numbers, and three scores of them."""
    inputs = x = keras.Input((8,))
    for layer in body:
        x = layer(x)
    return randomised(keras.Model(inputs, layers.Dense(3, name="scores")(x)))


def untrained(model, x):
    """The model as it imitates int8 before any step."""
    train, test = (
        Dataset({model.inputs[0].name: rows}, {"scores": np.arange(len(x)) % 3}) for rows in (x, x + 1)
    )
    return quantization_aware(model, TrainingSetup(train, test, None, TrainingParams(batch_size=8)), 0, 0)


def test_layers_that_tfmot_does_not_know_stay_float():
    model = chain(layers.Dense(8, "relu", name="known"), layers.LayerNormalization())
    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    aware = untrained(model, x)
    names = [layer.name for layer in aware.layers]
    assert {"quant_known", "quant_scores"} <= set(names)
    assert [name for name in names if "normalization" in name] == [model.layers[2].name]
    np.testing.assert_allclose(aware.predict(x, verbose=0), model.predict(x, verbose=0), atol=0.2)


def test_layers_of_activations_that_tfmot_does_not_know_stay_float():
    body = {name: layers.Dense(8, name, name=name) for name in ("relu", "elu", "silu", "relu6")}
    alone = [layers.Activation(name, name=f"{name}_alone") for name in ("relu6", "elu")]
    model = chain(*body.values(), *alone)
    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    aware = untrained(model, x)
    names = {layer.name for layer in aware.layers}
    assert names >= {"quant_relu", "elu", "quant_silu", "relu6", "quant_relu6_alone", "elu_alone"}
    np.testing.assert_allclose(aware.predict(x, verbose=0), model.predict(x, verbose=0), atol=0.2)


def test_statistics_of_inputs_stay():
    norm = layers.Normalization()
    model = chain(norm, layers.Dense(8, "relu"))
    x = np.random.default_rng(0).normal(50, 10, (40, 8)).astype(np.float32)
    norm.adapt(x)
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(untrained(model, x).predict(x, verbose=0), expected, atol=0.2)


def flipped():
    inputs = keras.Input((6, 6, 2), name="image")
    return keras.Model(inputs, layers.CenterCrop(4, 4)(layers.RandomFlip()(inputs)))


@pytest.mark.parametrize("make", [lambda: narrow(at_resolution(analyse(network()), 0.5), {}), flipped])
def test_options_that_keras_2_lacks_are_left_out(make):
    model = make()
    x = np.random.default_rng(0).uniform(size=(5, 6, 6, 2)).astype(np.float32)
    actual = translated(model, {"image": x})
    np.testing.assert_allclose(actual.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (layers.RMSNormalization(name="rms"), "layer 'rms', a RMSNormalization .*no such layer in Keras 2"),
        (layers.LayerNormalization(rms_scaling=True, name="odd"), 'which Keras 2 cannot build .*"odd"'),
    ],
)
def test_layers_that_keras_2_lacks_are_named(layer, message):
    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(3)(layer(inputs)))
    with pytest.raises(MistifyError, match=message) as caught:
        translated(model, {model.inputs[0].name: np.ones((2, 8), np.float32)})
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert 'precision "int8"' in caught.value.problems[0].fix


def test_the_model_is_not_changed():
    model = network()
    before = [weight.copy() for weight in model.get_weights()]
    quantization_aware(model, training_setup(model), 3, 0)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    assert [weight.shape for weight in fold_batch_norm(model).weights]
