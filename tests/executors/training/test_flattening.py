import keras
import numpy as np
import pytest

from executors.training.flattening import Flattener

layers = keras.layers


@pytest.fixture
def weights():
    """Return weights of several shapes, one of them a single number."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4, 4, 2))
    x = layers.Flatten()(layers.Conv2D(3, 2)(inputs))
    return keras.Model(inputs, layers.Dense(1)(x)).trainable_variables


def test_tensors_are_flattened_in_order_and_restored(weights):
    flattener = Flattener(weights)
    vector = flattener.flatten(weights)
    flat = np.concatenate([np.asarray(weight).ravel() for weight in weights])
    np.testing.assert_array_equal(vector, flat)
    for part, weight in zip(flattener.unflatten(vector), weights, strict=True):
        np.testing.assert_array_equal(part, weight)


def test_each_weight_is_filled_with_its_value(weights):
    values = np.arange(len(weights)) % 2 == 0
    repeated = Flattener(weights).repeat(values).numpy()
    expected = np.concatenate(
        [np.full(np.size(weight), value) for weight, value in zip(weights, values, strict=True)]
    )
    np.testing.assert_array_equal(repeated, expected)


def test_arrays_have_the_names_of_the_weights(weights):
    flattener = Flattener(weights)
    arrays = flattener.by_name(np.asarray(flattener.flatten(weights)), "abcd")
    assert "".join(arrays) == "abcd"
    for array, weight in zip(arrays.values(), weights, strict=True):
        np.testing.assert_array_equal(array, weight)
