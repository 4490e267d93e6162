"""Costs read off converted networks, against those of the layers that they were converted from."""

import keras
import pytest
import tensorflow as tf

from executors.structure import analyse
from mistify.config.quantization import QuantizationConfig
from mistify.costs.network import NetworkCost
from mistify.errors import MistifyError
from mistify_server.worker.packaging.conversion.converter import Function, convert, convert_function
from mistify_server.worker.packaging.tflite.costs import network_cost
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import network

layers = keras.layers


def transposed() -> keras.Model:
    inputs = keras.Input((6, 6, 4))
    x = layers.Conv2DTranspose(8, 3, 2, "same")(layers.Conv2D(4, 1, activation="relu")(inputs))
    return keras.Model(inputs, layers.Dense(5)(layers.Flatten()(x)))


def sequences() -> keras.Model:
    inputs = keras.Input((12, 8))
    x = layers.Dense(16)(layers.Conv1D(8, 3)(inputs))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def attention() -> keras.Model:
    inputs = keras.Input((6, 16))
    x = layers.MultiHeadAttention(2, 8)(inputs, inputs)
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


@pytest.mark.sampled
@pytest.mark.parametrize("make", [network, transposed, sequences, attention])
def test_multiply_adds_and_weights_are_those_of_the_layers(make: object) -> None:
    model = randomised(make())  # type: ignore[operator]
    expected, actual = analyse(model).network(), network_cost(convert(model))
    assert actual.flops == expected.flops
    stored = sum(layer.stored_params for layer in expected.layers)
    assert sum(layer.stored_params for layer in actual.layers) == pytest.approx(stored, rel=0.02)
    # The converter adds reshaped and transposed copies.
    assert 0.9 * expected.peak_activations <= actual.peak_activations <= 2.2 * expected.peak_activations


def test_the_size_is_near_that_of_the_file() -> None:
    content = convert(network(width=24))
    assert network_cost(content).size_bytes() == pytest.approx(len(content), rel=0.25)


def test_operators_that_run_others_are_refused() -> None:
    def grown(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 9, lambda y: (y * 2,), (x,))[0]

    function = Function(grown, [tf.TensorSpec([None, 4], tf.float32, "x")], ["y"])
    with pytest.raises(MistifyError, match="WHILE, whose cost is not known"):
        network_cost(convert_function(function, QuantizationConfig()))


def test_nothing_costs_nothing() -> None:
    inputs = keras.Input((4,))
    actual = network_cost(convert(keras.Model(inputs, layers.ReLU()(inputs))))
    assert isinstance(actual, NetworkCost)
    assert (actual.flops, actual.params) == (0, 0)


def test_numbers_that_index_a_table_are_no_obstacle() -> None:
    table = tf.random.stateless_normal((5, 8), seed=(0, 0))

    def looked_up(numbers: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.gather(table, numbers), axis=1)

    function = Function(looked_up, [tf.TensorSpec([None, 200], tf.int32, "numbers")], ["y"])
    actual = network_cost(convert_function(function, QuantizationConfig()))
    assert actual.params == pytest.approx(5 * 8, abs=5)
    assert actual.elements[actual.inputs[0]] == 200
