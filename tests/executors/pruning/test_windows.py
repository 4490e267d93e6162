"""Rows of windows, compared with the outputs of Keras layers."""

import keras
import numpy as np
import pytest

from executors.pruning.windows import places_of, sampled, window_rows
from executors.structure import analyse
from executors.structure.handlers import handler_of

layers = keras.layers

NETWORKS = {
    "same": ((9, 8, 3), layers.Conv2D(4, 3, padding="same")),
    "same, strides": ((9, 8, 3), layers.Conv2D(4, 3, strides=2, padding="same")),
    "even sizes": ((8, 8, 3), layers.Conv2D(4, (2, 5), strides=(2, 1), padding="same")),
    "strides beyond the kernel": ((9, 9, 2), layers.Conv2D(4, 1, strides=2, padding="same")),
    "valid": ((9, 8, 3), layers.Conv2D(4, (3, 2), strides=(2, 1))),
    "dilated": ((11, 9, 3), layers.Conv2D(4, 3, dilation_rate=2, padding="same")),
    "causal": ((7, 3), layers.Conv1D(4, 3, padding="causal", dilation_rate=2)),
    "volumes": ((5, 4, 6, 2), layers.Conv3D(3, 2, padding="same")),
    "dense": ((6,), layers.Dense(4)),
    "dense of steps": ((5, 6), layers.Dense(4)),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_kernel_over_the_rows_gives_the_outputs_of_the_layer(kind):
    shape, layer = NETWORKS[kind]
    inputs = keras.Input(shape)
    (node,) = analyse(keras.Model(inputs, layer(inputs))).graph.nodes
    (product,) = handler_of(node.name, node.layer).products(node)
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype("float32")
    expected = np.asarray(layer(x))
    assert places_of(x.shape, product.window) == expected.shape[:-1]
    places = sampled(expected.shape[:-1], 20, np.random.default_rng(1))
    kernel = layer.kernel.numpy()
    actual = window_rows(x, product.window, places) @ kernel.reshape(-1, kernel.shape[-1])
    np.testing.assert_allclose(actual, expected[places], atol=1e-5)


def test_sampled_positions_are_distinct_and_complete_if_there_are_few():
    few = sampled((2, 3), 10, np.random.default_rng(0))
    assert sorted(zip(*few, strict=True)) == [(row, column) for row in range(2) for column in range(3)]
    some = sampled((40, 50), 100, np.random.default_rng(0))
    assert len(set(zip(*some, strict=True))) == 100
