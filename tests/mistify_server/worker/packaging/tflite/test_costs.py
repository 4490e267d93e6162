"""Costs read from converted networks, compared with those of their layers."""

import keras
import pytest
import tensorflow as tf

from executors.structure import analyse
from executors.structure.exporting import NamedFunction
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.network import NetworkCost
from mistify.costs.operators import Operation, OperatorKind
from mistify.errors import MistifyError
from mistify_server.worker.packaging.conversion.converter import convert, convert_function
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
def test_multiply_adds_and_weights_equal_those_of_the_layers(make: object) -> None:
    model = randomised(make())  # type: ignore[operator]
    expected, actual = analyse(model).network(), network_cost(convert(model))
    assert actual.flops == expected.flops
    stored = sum(layer.stored_params for layer in expected.layers)
    assert sum(layer.stored_params for layer in actual.layers) == pytest.approx(stored, rel=0.02)
    # The converter adds reshaped and transposed copies.
    assert 0.9 * expected.activation_bytes() <= actual.activation_bytes() <= 2.2 * expected.activation_bytes()


def test_the_predicted_size_is_close_to_that_of_the_file() -> None:
    content = convert(network(width=24))
    assert network_cost(content).size_bytes() == pytest.approx(len(content), rel=0.25)


def test_operators_that_call_other_graphs_are_refused() -> None:
    def grown(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 9, lambda y: (y * 2,), (x,))[0]

    function = NamedFunction(grown, [tf.TensorSpec([None, 4], tf.float32, "x")], ["y"])
    with pytest.raises(MistifyError, match="WHILE, which has unknown costs"):
        network_cost(convert_function(function, QuantizationConfig()))


def test_an_empty_network_has_no_costs() -> None:
    inputs = keras.Input((4,))
    actual = network_cost(convert(keras.Model(inputs, layers.ReLU()(inputs))))
    assert isinstance(actual, NetworkCost)
    assert (actual.flops, actual.params) == (0, 0)


def test_integer_inputs_that_index_a_table_are_supported() -> None:
    table = tf.random.stateless_normal((5, 8), seed=(0, 0))

    def looked_up(numbers: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.gather(table, numbers), axis=1)

    function = NamedFunction(looked_up, [tf.TensorSpec([None, 200], tf.int32, "numbers")], ["y"])
    actual = network_cost(convert_function(function, QuantizationConfig()))
    assert actual.params == pytest.approx(5 * 8, abs=5)
    assert actual.elements[actual.inputs[0]] == 200


def test_tensors_of_a_network_are_classified_correctly() -> None:
    """Shapes, axes and paddings are constants, and outputs may have other readers."""

    def summed(x: tf.Tensor) -> list[tf.Tensor]:
        y = tf.nn.relu(tf.pad(tf.reshape(x, [-1, 4, 6]), [[0, 0], [1, 1], [0, 0]]))
        return [y, tf.reduce_sum(y, axis=1)]

    function = NamedFunction(summed, [tf.TensorSpec([None, 24], tf.float32, "x")], ["y", "sum"])
    actual = network_cost(convert_function(function, QuantizationConfig()))
    assert [actual.elements[tensor] for tensor in actual.inputs] == [24]
    assert sorted(actual.elements[tensor] for tensor in actual.outputs) == [6, 36]
    assert actual.params == 0


@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_counts_its_multiply_adds_per_output_element(transposed: bool) -> None:
    """One matrix on the left is multiplied by four on the right."""

    def multiplied(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.matmul(left, right, transpose_a=transposed, transpose_b=transposed)

    shapes = {"left": [None, 1, 3, 5], "right": [None, 4, 5, 7]}
    turned = {name: [*shape[:2], *reversed(shape[2:])] for name, shape in shapes.items()}
    specs = [
        tf.TensorSpec(shape, tf.float32, name) for name, shape in (turned if transposed else shapes).items()
    ]
    actual = network_cost(convert_function(NamedFunction(multiplied, specs, ["y"]), QuantizationConfig()))
    assert actual.flops == 4 * 3 * 5 * 7
    assert Operation(OperatorKind.PRODUCT, 3, 5, 7, times=4) in list(actual.operations)
