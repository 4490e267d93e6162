"""The starting weights of variants, compared with least squares over patches collected one by one."""

import keras
import numpy as np
import pytest

from executors.algorithms.crowdhmt.depth import SingleLayer
from executors.algorithms.crowdhmt.fire import Fire
from executors.algorithms.crowdhmt.ghost import Ghost
from executors.algorithms.crowdhmt.low_rank import LowRank, Separable
from executors.algorithms.crowdhmt.rescaled import LowResolution, SmallerKernel
from tests.executors.algorithms.crowdhmt.conftest import block, examples

layers = keras.layers


def convolution(size=3, stride=1, channels=6):
    """Return a block of one convolution with random weights."""
    keras.utils.set_random_seed(4)
    inputs = keras.Input((8, 8, 6), name="features")
    convolve = layers.Conv2D(channels, size, stride, padding="same", name="only", bias_initializer="uniform")
    return keras.Model(inputs, convolve(inputs))


def patches(inputs, size=3, stride=1):
    """Return the inputs of a padded kernel at every position [positions, size * size * channels]."""
    count = -(-inputs.shape[1] // stride)
    total = max((count - 1) * stride + size - inputs.shape[1], 0)
    padded = np.pad(inputs, ((0, 0), *[(total // 2, total - total // 2)] * 2, (0, 0)))
    return np.array(
        [
            padded[n, row * stride : row * stride + size, column * stride : column * stride + size].ravel()
            for n in range(len(inputs))
            for row in range(count)
            for column in range(count)
        ]
    )


def best(rows, targets):
    """Return the best linear approximation of targets, with a constant."""
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    return rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]


def outputs(model, inputs):
    found = np.asarray(model(inputs))
    return found.reshape(-1, found.shape[-1])


def assert_close(found, expected):
    """Compare up to the small ridge of the product's regressions."""
    assert np.mean((found - expected) ** 2) < 1e-4 * np.var(expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_low_rank_kernels_span_the_principal_outputs(made, stride):
    model = convolution(stride=stride)
    inputs = examples(model)
    whole = outputs(model, inputs)
    rank = int(0.7 * 54 * 6 / 60)
    directions = np.linalg.svd(whole - whole.mean(0), full_matrices=False)[2][:rank]
    kernel = model.get_layer("only").get_weights()[0].reshape(54, 6)
    expected = best(patches(inputs, stride=stride) @ kernel @ directions.T, whole)
    assert_close(outputs(made(model, LowRank(), 0.7, inputs), inputs), expected)


def test_kernels_of_low_rank_are_reproduced(made):
    model = convolution()
    rng = np.random.default_rng(5)
    kernel = rng.standard_normal((54, 2)) @ rng.standard_normal((2, 6))
    model.get_layer("only").set_weights([kernel.reshape(3, 3, 6, 6), rng.standard_normal(6)])
    inputs = examples(model)
    assert_close(outputs(made(model, LowRank(), 0.5, inputs), inputs), outputs(model, inputs))


@pytest.mark.parametrize("multiplier", [1, 2])
def test_kernels_that_can_be_separated_are_reproduced(made, multiplier):
    model = convolution()
    rng = np.random.default_rng(5)
    depthwise = rng.standard_normal((3, 3, 6, multiplier))
    kernel = np.einsum("hwcm,cmo->hwco", depthwise, rng.standard_normal((6, multiplier, 6)))
    model.get_layer("only").set_weights([kernel, rng.standard_normal(6)])
    inputs = examples(model)
    assert_close(outputs(made(model, Separable(), multiplier, inputs), inputs), outputs(model, inputs))


@pytest.mark.parametrize("stride", [1, 2])
def test_smaller_kernels_are_fitted(made, stride):
    model = convolution(stride=stride)
    inputs = examples(model)
    expected = best(patches(inputs, 1, stride), outputs(model, inputs))
    assert_close(outputs(made(model, SmallerKernel(), 1, inputs), inputs), expected)


def test_both_parts_of_a_fire_module_are_fitted(made):
    model = convolution()
    inputs = examples(model) @ np.diag(np.arange(1.0, 7.0)).astype(np.float32)
    channels = inputs.reshape(-1, 6)
    squeezed = inputs @ np.linalg.svd(channels - channels.mean(0), full_matrices=False)[2][:3].T
    whole = outputs(model, inputs)
    expected = [best(patches(squeezed, 1), whole[:, :3]), best(patches(squeezed, 3), whole[:, 3:])]
    assert_close(outputs(made(model, Fire(), 0.5, inputs), inputs), np.hstack(expected))


def test_ghost_channels_are_fitted_one_by_one(made):
    """A third of the channels is computed; two depthwise kernels for each of them make the others."""
    model = convolution()
    inputs = examples(model)
    whole = outputs(model, inputs)
    primary = best(patches(inputs), whole[:, :2]).reshape(*inputs.shape[:3], 2)
    ghosts = [best(patches(primary[..., [n // 2]]), whole[:, [2 + n]]) for n in range(4)]
    expected = np.hstack([primary.reshape(-1, 2), *ghosts])
    assert_close(outputs(made(model, Ghost(), 0.33, inputs), inputs), expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_one_layer_is_fitted_to_a_branch(made, stride):
    keras.utils.set_random_seed(4)
    inputs = keras.Input((8, 8, 6), name="features")
    hidden = layers.Conv2D(8, 3, stride, padding="same", activation="relu")(inputs)
    skip = inputs if stride == 1 else layers.Conv2D(6, 1, stride, name="skip")(inputs)
    model = keras.Model(inputs, layers.Add()([skip, layers.Conv2D(6, 3, padding="same")(hidden)]))
    features = examples(model)
    skipped = outputs(keras.Model(inputs, skip), features)
    expected = skipped + best(patches(features, 3, stride), outputs(model, features) - skipped)
    assert_close(outputs(made(model, SingleLayer(), 3, features), features), expected)


def test_a_feed_forward_unit_becomes_a_dense_layer(made):
    model = block("feed_forward")
    inputs = examples(model)
    flat = inputs.reshape(-1, 8)
    variant = made(model, SingleLayer(), 1, inputs)
    assert_close(outputs(variant, inputs), flat + best(flat, outputs(model, inputs) - flat))


def test_kernels_are_fitted_to_what_earlier_replacements_compute(made):
    model = block("residual")
    inputs = examples(model)
    variant = made(model, LowRank(), 0.3, inputs)
    inside = {name: outputs(at(variant, name), inputs) for name in ("last-narrow", "last-wide")}
    expected = best(inside["last-narrow"], outputs(at(model, "last"), inputs))
    assert_close(inside["last-wide"], expected)


def test_a_branch_at_half_the_resolution_is_fitted_to_means(made):
    model = block("residual")
    inputs = examples(model)
    variant = made(model, LowResolution(), 0.5, inputs)
    whole = np.asarray(at(model, "last")(inputs))
    means = whole.reshape(len(whole), 4, 2, 4, 2, 6).mean((2, 4)).reshape(-1, 6)
    read = np.asarray(keras.Model(variant.input, variant.get_layer("last-low").input)(inputs))
    assert_close(outputs(at(variant, "last-low"), inputs), best(patches(read), means))


def at(model, layer):
    """Return the model up to a layer."""
    return keras.Model(model.input, model.get_layer(layer).output)
