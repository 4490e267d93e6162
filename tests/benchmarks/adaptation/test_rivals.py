"""The other methods, against formulas computed here on a network of one batch norm."""

import keras
import numpy as np
import pytest

from benchmarks.adaptation.rivals import Rival

layers = keras.layers
EPSILON = 1e-3


@pytest.fixture(scope="module")
def network():
    """Return a network that normalizes two channels, and takes the softmax of weighted sums."""
    keras.utils.set_random_seed(0)
    image = keras.Input((4, 4, 2), name="image")
    x = layers.BatchNormalization(epsilon=EPSILON, name="norm")(image)
    x = layers.Flatten()(layers.ReLU()(x))
    model = keras.Model(image, layers.Dense(3, "softmax", name="class")(x))
    rng = np.random.default_rng(0)
    model.get_layer("norm").set_weights(
        [*rng.uniform(0.5, 2, (2, 2)), rng.normal(size=2), rng.uniform(1, 2, 2)]
    )
    return model


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).normal(1.0, 3.0, (40, 4, 4, 2)).astype(np.float32)


def answered(network, images, mean, variance):
    """Return the probabilities with other statistics: arrays that broadcast to [n, 4, 4, 2]."""
    gamma, beta = network.get_layer("norm").get_weights()[:2]
    x = (images - mean) / np.sqrt(variance + EPSILON) * gamma + beta
    kernel, bias = network.get_layer("class").get_weights()
    sums = np.maximum(x, 0).reshape(len(x), -1) @ kernel + bias
    powers = np.exp(sums - sums.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def mixed(network, mean, variance, share):
    """Return the moments of a mixture of the shipped examples and others."""
    own_mean, own_variance = network.get_layer("norm").get_weights()[2:]
    both = (1 - share) * own_mean + share * mean
    squares = (1 - share) * (own_variance + own_mean**2) + share * (variance + mean**2)
    return both, squares - both**2


def test_entropy_at_rate_zero_is_the_network(network, images):
    expected = network(images).numpy().argmax(1)
    np.testing.assert_array_equal(Rival(network, "entropy", 0.0).answers(images), expected)


def test_leantta_mixes_the_statistics_of_each_example_by_their_distance(network, images):
    own_mean, own_variance = network.get_layer("norm").get_weights()[2:]
    mean, variance = images.mean((1, 2), keepdims=True), images.var((1, 2), keepdims=True)
    distance = (np.abs(mean - own_mean) / np.sqrt(own_variance + EPSILON)).mean(-1, keepdims=True)
    statistics = mixed(network, mean, variance, 0.6 * np.minimum(distance, 1))
    expected = answered(network, images, *statistics).argmax(1)
    given = Rival(network, "leantta", 0.6).answers(images)
    np.testing.assert_array_equal(given, expected)
    assert (given != network(images).numpy().argmax(1)).any()


def test_leantta_keeps_nothing_from_one_example_to_the_next(network, images):
    rival = Rival(network, "leantta", 1.0)
    first = rival.answers(images)
    np.testing.assert_array_equal(rival.answers(images[::-1].copy()), first[::-1])


def test_tent_answers_with_the_statistics_of_a_batch_before_it_learns_from_it(network, images):
    mean, variance = images[:16].mean((0, 1, 2)), images[:16].var((0, 1, 2))
    expected = answered(network, images[:16], *mixed(network, mean, variance, 0.5)).argmax(1)
    np.testing.assert_array_equal(Rival(network, "tent", 1e-2).answers(images)[:16], expected)


@pytest.mark.parametrize("method", ["tent", "entropy"])
def test_a_step_lowers_the_entropy_of_its_batch_until_it_is_reset(network, images, method):
    def entropy(outputs):
        return float(-(outputs * np.log(outputs + 1e-7)).sum(-1).mean())

    batch = images[:16]
    rival = Rival(network, method, 1e-2)
    entropies = [entropy(rival._step(batch).numpy()) for _ in range(5)]
    assert entropies == sorted(entropies, reverse=True)
    assert entropies[-1] < entropies[0]
    assert entropy(rival.reset()._step(batch).numpy()) == pytest.approx(entropies[0], rel=1e-5)


def test_the_network_is_not_changed(network, images):
    before = network.get_weights()
    Rival(network, "tent", 1.0).answers(images)
    for one, other in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
