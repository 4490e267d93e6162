"""Several updates of the same place, compared with Keras and with LiteRT's own result in float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.mistify_server.worker.packaging.rewriting.test_integer_ranges import INT8, network, rows

layers = keras.layers

#: Two updates go to the column 1.
PLACES = [[1], [3], [1]]


@keras.saving.register_keras_serializable("tests")
def known(x):
    return tf.constant(PLACES)


@keras.saving.register_keras_serializable("tests")
def unknown(x):
    """Return the places as if they depended on data."""
    return tf.constant(PLACES) + tf.cast(tf.math.count_nonzero(tf.sin(x) > 2), tf.int32)


@keras.saving.register_keras_serializable("tests")
def summed(x, places):
    columns = tf.transpose(tf.abs(x)[:, 4:7])
    return tf.transpose(tf.scatter_nd(places(x), columns, [8, tf.shape(columns)[1]]))


@keras.saving.register_keras_serializable("tests")
def updated(x, places):
    columns = tf.transpose(tf.gather(tf.abs(x), [4, 5, 4], axis=1))
    return tf.transpose(tf.tensor_scatter_nd_update(tf.transpose(x), places(x), columns))


@pytest.mark.parametrize("places", [known, unknown])
@pytest.mark.parametrize("operation", [summed, updated])
def test_updates_of_the_same_place(operation, places):
    model = network(layers.Lambda(operation, arguments={"places": places}))
    expected = np.asarray(model(rows(40, 1)["x"])[0])
    in_floats = Runner(convert(model))(rows(40, 1))["y"]
    np.testing.assert_allclose(in_floats, expected, rtol=1e-5, atol=1e-6)
    in_integers = Runner(convert(model, INT8, rows(200)))(rows(40, 1))["y"]
    of_reading, of_writing = 10 / 255, np.ptp(in_floats) / 255
    assert np.abs(in_integers - in_floats).max() < 2 * (of_reading + of_writing)
