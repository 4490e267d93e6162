"""Cut networks fitted to their previous outputs, compared with independent fits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Compensation
from executors.pruning.refitting import Original, refit
from executors.structure import analyse, copied, narrow, remove_named_blocks, residual_blocks, widen
from executors.training.evaluation import Evaluation, evaluate, recalibrate
from tests.executors.conftest import small_resnet
from tests.executors.pruning.copies import with_copies
from tests.executors.pruning.test_reconstruction import attending, difference, examples
from tests.executors.structure.networks import randomised

layers = keras.layers


def whole(structure):
    return {name: np.ones(size, bool) for name, size in structure.widths.items()}


def cut(model, keep, data, *, physically=False, removed_blocks=()):
    """Mask units of a model, or cut them from a narrower copy, and fit the remaining weights."""
    structure = analyse(model)
    keep = {**whole(structure), **keep}
    original = Original.of(structure)
    left = remove_named_blocks(structure, removed_blocks)
    if physically or removed_blocks:
        model = narrow(left, {name: keep[name] for name in left.groups})
        left = analyse(model)
    else:
        Masks(structure).set(keep)
    refit(original, keep, left.graph, data)
    return model


def least_squares(inputs, wanted, bias=True):
    """Return the predictions of a least squares fit by NumPy."""
    known = np.c_[inputs, np.ones(len(inputs))] if bias else inputs
    return known @ np.linalg.lstsq(known, wanted, rcond=None)[0]


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_dense_layer_is_replaced_by_its_least_squares_fit(use_bias):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    hidden = layers.Dense(8, "tanh", name="hidden")
    model = keras.Model(inputs, layers.Dense(3, name="out", use_bias=use_bias)(hidden(inputs)))
    hidden.bias.assign(np.linspace(-1, 1, 8))
    data = examples(model, 250)
    activations = np.asarray(hidden(data.inputs["x"]), np.float64)
    wanted = np.asarray(model(data.inputs["x"]), np.float64)
    keep = np.arange(8) < 5
    cut(model, {"hidden": keep}, data)
    best = least_squares(activations[:, keep], wanted, use_bias)
    actual = np.asarray(model(data.inputs["x"]), np.float64)
    assert np.square(actual - wanted).mean() == pytest.approx(np.square(best - wanted).mean(), rel=1e-2)


def test_a_layer_with_too_many_input_channels_is_not_changed(monkeypatch):
    monkeypatch.setattr("executors.pruning.layer_fits._MOST_COLUMNS", 7)
    inputs = keras.Input((6,), name="x")
    outputs = layers.Dense(3, name="out")(layers.Dense(8, "tanh", name="hidden")(inputs))
    model = randomised(keras.Model(inputs, outputs))
    before = model.get_layer("out").kernel.numpy()
    keep = np.arange(8) < 5
    cut(model, {"hidden": keep}, examples(model, 100))
    np.testing.assert_array_equal(model.get_layer("out").kernel.numpy(), before * keep[:, None])


def convolutional():
    """Return three convolutions in a row; the last two have 3 x 3 kernels."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((7, 7, 2), name="x")
    x = layers.Conv2D(6, 3, activation="tanh", name="first")(inputs)
    x = layers.Conv2D(5, 3, strides=2, padding="same", activation="tanh", name="second")(x)
    return keras.Model(inputs, layers.Conv2D(3, 2, name="out")(x))


def patches(tensor, size, stride, padding):
    rows = tf.image.extract_patches(
        tensor, [1, size, size, 1], [1, stride, stride, 1], [1, 1, 1, 1], padding
    ).numpy()
    return rows.reshape(-1, rows.shape[-1])


def test_each_layer_is_fitted_to_the_remaining_inputs():
    model = convolutional()
    data = examples(model, 400)
    layer = {layer.name: layer for layer in model.layers}
    first = layer["first"](data.inputs["x"])
    linear = tf.atanh(layer["second"](first)).numpy().reshape(-1, 5)
    wanted = np.asarray(model(data.inputs["x"])).reshape(-1, 3)
    keep = {"first": np.arange(6) < 4, "second": np.arange(5) != 2}
    small = cut(model, keep, data, physically=True)

    kept = patches(first.numpy()[..., keep["first"]], 3, 2, "SAME")
    second = np.tanh(least_squares(kept, linear[:, keep["second"]]))
    images = second.reshape(400, 3, 3, 4)
    best = least_squares(patches(images, 2, 1, "VALID"), wanted)
    actual = np.asarray(small(data.inputs["x"])).reshape(-1, 3)
    error, least = np.square(actual - wanted).mean(), np.square(best - wanted).mean()
    assert error == pytest.approx(least, rel=0.05)


def test_masked_and_narrowed_networks_get_the_same_fit():
    masked, data = convolutional(), examples(convolutional(), 100)
    keep = {"first": np.arange(6) < 4, "second": np.arange(5) != 2}
    small = cut(convolutional(), keep, data, physically=True)
    cut(masked, keep, data)
    x = data.inputs["x"]
    np.testing.assert_allclose(np.asarray(masked(x)), np.asarray(small(x)), atol=1e-4)
    for weight, unit in (("first", 4), ("second", 2)):
        kernel = masked.get_layer(weight).kernel.numpy()
        assert not kernel[..., unit].any()


def test_the_remaining_copy_of_a_unit_compensates_for_the_others(trained, digits):
    original, wide = copied(trained), with_copies(trained)
    keep = {name: np.arange(group.size) % 2 == 0 for name, group in analyse(wide).groups.items()}
    cut(wide, keep, digits[0])
    for model in (original, wide):
        recalibrate(model, digits[0])
    assert difference(wide, original, digits[1]) < 5e-3


def test_nothing_changes_without_a_cut(digits):
    model = small_resnet()
    before = model.get_weights()
    cut(model, {}, digits[0])
    for weight, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_statistics_of_batch_norms_are_not_changed(trained, digits):
    model = copied(trained)
    before = [norm.moving_mean.numpy() for norm in model.layers if hasattr(norm, "moving_mean")]
    structure = analyse(model)
    keep = {name: np.arange(group.size) > 0 for name, group in structure.groups.items()}
    cut(model, keep, digits[0])
    after = [norm.moving_mean.numpy() for norm in model.layers if hasattr(norm, "moving_mean")]
    for now, then in zip(after, before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(
    "consumer",
    [
        layers.Conv2D(4, 3, groups=2, name="consumer"),
        layers.DepthwiseConv2D(3, name="consumer"),
        layers.SeparableConv2D(4, 3, name="consumer"),
        layers.Conv2D(4, 3, name="consumer", trainable=False),
    ],
    ids=["grouped", "depthwise", "separable", "frozen"],
)
def test_layers_that_cannot_be_fitted_are_not_changed(consumer):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 3), name="x")
    x = layers.Conv2D(4, 1, name="middle")(layers.Conv2D(4, 1, activation="relu", name="first")(inputs))
    model = keras.Model(inputs, layers.Conv2D(2, 1, name="out")(consumer(x)))
    before = [weight.numpy() for weight in consumer.weights]
    cut(model, {"first": np.arange(4) != 0}, examples(model, 50))
    for weight, expected in zip(consumer.weights, before, strict=True):
        np.testing.assert_array_equal(np.asarray(weight), expected)


def test_other_layers_are_fitted_to_inputs_like_the_old_ones():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 2), name="x")
    first = layers.Conv2D(4, 1, name="first")
    middle = layers.Conv2D(5, 1, name="middle")
    model = keras.Model(inputs, layers.Conv2DTranspose(2, 3, name="out")(middle(first(inputs))))
    data = examples(model, 200)
    # Features of rank two: any cut unit is a combination of the remaining ones.
    expected = np.asarray(model(data.inputs["x"]))
    cut(model, {"middle": np.arange(5) < 3, "first": np.arange(4) < 3}, data)
    np.testing.assert_allclose(np.asarray(model(data.inputs["x"])), expected, atol=0.02)


def test_a_strided_transposed_kernel_distributes_a_constant_over_its_outputs():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 2), name="x")
    first = layers.Conv2D(4, 1, name="first", bias_initializer="ones")
    middle = layers.Conv2D(5, 1, name="middle", bias_initializer="ones")
    out = layers.Conv2DTranspose(2, 2, strides=2, name="out")
    model = keras.Model(inputs, out(middle(first(inputs))))
    data = examples(model, 200)
    expected = np.asarray(model(data.inputs["x"])).mean(axis=(0, 1, 2))
    cut(model, {"middle": np.arange(5) < 3, "first": np.arange(4) < 3}, data)
    actual = np.asarray(model(data.inputs["x"])).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(actual, expected, atol=1e-3)


def test_a_layer_called_twice_is_not_changed():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    shared = layers.Dense(6, name="shared")
    x = layers.Dense(6, "tanh", name="first")(inputs)
    model = keras.Model(inputs, layers.Dense(2, name="out")(shared(shared(x))))
    before = shared.kernel.numpy()
    groups = analyse(model).groups
    keep = {name: np.ones(group.size, bool) for name, group in groups.items()}
    name = next(iter(groups))
    keep[name][0] = False
    cut(model, keep, examples(model, 100))
    kept = keep[name]
    np.testing.assert_array_equal(shared.kernel.numpy()[np.ix_(kept, kept)], before[np.ix_(kept, kept)])


@pytest.mark.parametrize("fitted", [True, False])
def test_attention_reads_the_remaining_copies(fitted):
    source = attending()
    data = examples(source)
    wide = widen(analyse(source), 2.0)
    keep = {"stream": np.arange(analyse(wide).groups["stream"].size) % 2 == 0}
    if fitted:
        small = cut(wide, keep, data, physically=True)
    else:
        structure = analyse(wide)
        small = narrow(structure, {**whole(structure), **keep})
    predicted = [Evaluation(model).outputs(data.inputs)["y"] for model in (source, small)]
    off = np.abs(predicted[0] - predicted[1]).mean()
    assert off < 5e-3 if fitted else off > 2e-2


def test_fitting_compensates_for_a_removed_block(trained, digits):
    structure = analyse(trained)
    (block, *_) = residual_blocks(structure.graph)
    left = remove_named_blocks(structure, [block.name])
    plain = narrow(left, whole(left))
    fitted = cut(copied(trained), {}, digits[0], removed_blocks=[block.name])
    off = []
    for small in (plain, fitted):
        recalibrate(small, digits[0])
        off.append(difference(small, trained, digits[1]))
    assert off[1] < 0.7 * off[0], off


def test_fitting_preserves_more_accuracy_than_compensation(trained, digits):
    rng, reached = np.random.default_rng(0), []
    sizes = {name: group.size for name, group in analyse(trained).groups.items()}
    keep = {name: rng.permutation(size) < size // 2 for name, size in sizes.items()}
    for refitted in (True, False):
        model = copied(trained)
        if refitted:
            cut(model, keep, digits[0])
        else:
            structure = analyse(model)
            compensation, masks = Compensation(structure), Masks(structure)
            compensation.apply(masks.keep, keep, compensation.moments(digits[0]))
            masks.set(keep)
        recalibrate(model, digits[0])
        reached.append(evaluate(model, digits[1]))
    assert reached[0] > reached[1] + 0.03, reached
