"""The positions of heads, and the stages between them."""

import keras
import numpy as np
import pytest

from executors.exits.trunk import Trunk, pooled
from tests.executors.structure.networks import randomised

layers = keras.layers


def network(side=16):
    """Return a small residual network with random weights."""
    inputs = x = keras.Input((side, side, 3), name="image")
    for number, (width, stride) in enumerate([(8, 1), (8, 1), (16, 2), (16, 1), (32, 2), (32, 1)]):
        y = layers.Conv2D(width, 3, stride, padding="same", name=f"conv_{number}")(x)
        y = layers.BatchNormalization(name=f"norm_{number}")(y)
        if number % 2:
            y = layers.Add(name=f"add_{number}")([x, y])
        x = layers.ReLU(name=f"relu_{number}")(y)
    x = layers.GlobalAveragePooling2D()(x)
    return randomised(keras.Model(inputs, layers.Dense(5, "softmax", name="class")(x)), 0)


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def trunk(model):
    return Trunk(model)


def test_heads_may_follow_blocks_but_not_parts_of_them(trunk):
    assert [(position.name, position.shape) for position in trunk.positions] == [
        ("relu_1", (16, 16, 8)),
        ("relu_2", (8, 8, 16)),
        ("relu_3", (8, 8, 16)),
        ("relu_4", (4, 4, 32)),
    ]


def test_positions_can_be_restricted_to_some_layers(trunk):
    restricted = trunk.restricted(["relu_4", "relu_2"])
    assert restricted.positions == (trunk.positions[1], trunk.positions[3])
    assert len(trunk.positions) == 4
    assert [part.shape[1:] for part in restricted.pooled().outputs] == [(16 * 16,), (16 * 32,), (5,)]


def test_positions_have_the_multiply_adds_before_them(trunk):
    stem, block = 16 * 16 * 9 * 3 * 8, 16 * 16 * 9 * 8 * 8
    second = 8 * 8 * 9 * 8 * 16 + 8 * 8 * 9 * 16 * 16
    third = 4 * 4 * 9 * 16 * 32 + 4 * 4 * 9 * 32 * 32
    assert trunk.positions[0].multiply_adds == stem + block
    assert trunk.positions[2].multiply_adds == stem + block + second
    assert trunk.multiply_adds == stem + block + second + third + 32 * 5


def test_a_network_may_have_layers_with_the_names_that_keras_gives():
    inputs = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same")(inputs)
    x = layers.Conv2D(8, 3, padding="same")(layers.AveragePooling2D(2, name="average_pooling2d")(x))
    x = layers.Conv2D(8, 3, padding="same")(x)
    model = keras.Model(inputs, layers.Dense(5, "softmax")(layers.Flatten(name="flatten")(x)))
    keras.utils.clear_session()
    assert len(Trunk(model).pooled().outputs) == 3


@pytest.mark.parametrize("kept", [(), (1,), (0, 2), (0, 1, 2, 3)])
def test_stages_together_are_the_network(model, trunk, kept):
    x = images = np.random.default_rng(0).uniform(size=(3, 16, 16, 3)).astype(np.float32)
    positions = [trunk.positions[at] for at in kept]
    stages = trunk.stages(positions)
    for stage, position in zip(stages, positions, strict=False):
        x = stage(x, training=False)
        assert x.shape[1:] == position.shape
    np.testing.assert_allclose(stages[-1](x), model(images, training=False), atol=1e-5)


def test_pooled_features_are_means_of_what_stages_compute(trunk):
    x = images = np.random.default_rng(0).uniform(size=(2, 16, 16, 3)).astype(np.float32)
    *actual, _ = trunk.pooled()(images, training=False)
    for stage, features in zip(trunk.stages(trunk.positions), actual, strict=False):
        x = np.asarray(stage(x, training=False))
        count, side, _, width = x.shape
        means = x.reshape(count, 4, side // 4, 4, side // 4, width).mean((2, 4))
        np.testing.assert_allclose(features, means.reshape(count, -1), atol=1e-5)


@pytest.mark.parametrize(("size", "stride", "window"), [(7, 1, 4), (14, 3, 5), (9, 2, 3), (4, 1, 1)])
def test_windows_of_equal_size_cover_features_that_four_does_not_divide(size, stride, window):
    x = np.random.default_rng(0).uniform(size=(1, size, size, 2)).astype(np.float32)
    actual = np.asarray(pooled(keras.ops.convert_to_tensor(x)))
    starts = [stride * at for at in range(4)]
    assert starts[-1] + window == size
    expected = [[x[0, a : a + window, b : b + window].mean((0, 1)) for b in starts] for a in starts]
    np.testing.assert_allclose(actual[0], expected, atol=1e-6)


def test_smaller_features_and_vectors_are_not_pooled():
    assert pooled(keras.Input((3, 2, 5))).shape == (None, 3, 2, 5)
    assert pooled(keras.Input((7,))).shape == (None, 7)
