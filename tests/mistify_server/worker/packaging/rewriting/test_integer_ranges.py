"""Operations whose inputs have other readers, in int8, compared with Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.converter import convert, saved
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.mistify_server.worker.packaging.networks import operators

layers, ops = keras.layers, keras.ops

FLOAT32, INT8 = (QuantizationConfig.model_validate(precision) for precision in ("none", "int8"))

OPERATIONS = {
    "minimum": lambda x: ops.minimum(x, 0.25),
    "maximum": lambda x: ops.maximum(x, -0.25),
    "minimum of two": lambda x: layers.Minimum()([x, 0.2 * ops.flip(x, 1)]),
    "where": lambda x: ops.where(ops.sin(x) > 2, x, 0.1 * x),
    "two of them": lambda x: ops.minimum(x, 0.25) + ops.maximum(x, -0.25),
    "celu": layers.Activation("celu"),
    "selu": layers.Activation("selu"),
    "flipped part": lambda x: ops.flip(x[:, :4], 1),
    "one hot": lambda x: ops.one_hot(ops.argmax(x, -1), 8),
    "updated columns": lambda x: updated(x, 0.1 * x[:, :2]),
    "columns of itself": lambda x: updated(x, x[:, 4:6]),
    "scattered columns": lambda x: layers.Lambda(scattered)(ops.abs(x)[:, 4:6]),
}


def updated(x, columns):
    return ops.transpose(ops.scatter_update(ops.transpose(x), [[1], [3]], ops.transpose(columns)))


@keras.saving.register_keras_serializable("tests")
def scattered(columns):
    rows = tf.transpose(columns)
    return tf.transpose(tf.scatter_nd([[1], [3]], rows, [8, tf.shape(rows)[1]]))


def rows(count, seed=0):
    values = np.random.default_rng(seed).uniform(-5, 5, (count, 8)).astype(np.float32)
    values[:, :4] /= 10
    return {"x": values}


def network(operation):
    inputs = keras.Input((8,), name="x")
    x = layers.Dense(8, kernel_initializer="identity", name="d")(inputs)
    outputs = [layers.Identity(name="y")(operation(x)), layers.Rescaling(0.5, name="half")(x)]
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize("name", OPERATIONS)
def test_all_outputs_agree_with_keras(name):
    model = network(OPERATIONS[name])
    expected = dict(zip(("y", "half"), model(rows(40, 1)["x"]), strict=True))
    actual = Runner(convert(model, INT8, rows(200)))(rows(40, 1))
    for output, values in expected.items():
        of_reading, of_writing = 10 / 255, np.ptp(values) / 255
        assert np.abs(actual[output] - values).max() < 2 * (of_reading + of_writing), output


def test_nothing_is_copied_without_integers():
    assert "LEAKY_RELU" not in {name for name, _ in operators(convert(network(OPERATIONS["minimum"])))}


def test_tensors_without_other_readers_are_not_copied():
    inputs = keras.Input((8,), name="x")
    model = keras.Model(inputs, ops.minimum(layers.Dense(8)(inputs), 0.25))
    assert "LEAKY_RELU" not in {name for name, _ in operators(convert(model, INT8, rows(50)))}


def test_a_conversion_does_not_depend_on_earlier_precisions():
    model = network(OPERATIONS["minimum"])
    with saved(model) as once:
        after = [once.at(precision, rows(50)) for precision in (INT8, FLOAT32, INT8)]
    assert after[1] == convert(model)
    assert after[0] == after[2]
