"""Every gradient built from LiteRT operations equals TensorFlow's gradient."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from mistify.package.training import KD_WEIGHT
from mistify_server.worker.packaging.training.operations.builtins import UntrainableError, in_builtins
from tests.mistify_server.worker.packaging.training.networks import (
    MANY,
    NETWORKS,
    lesson_of,
    network,
    trained,
)

layers = keras.layers


def gradients(model):
    """Return gradients of the loss from replacements and from TensorFlow, and the graph of the former."""
    made = trained(model)
    value = {name: tf.constant(array) for name, array in lesson_of(model).items()}
    value[KD_WEIGHT] = tf.constant(0.5)
    weights = [tf.constant(weight.numpy()) for weight in made.weights]

    def loss_of(weights, value):
        return made.loss(made.call(weights, value), value)

    @tf.function(autograph=False)
    def actual(weights, value):
        return tf.gradients(in_builtins(loss_of)(weights, value), weights)

    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = loss_of(weights, value)
    graph = actual.get_concrete_function(weights, value).graph
    return _dense(actual(weights, value)), _dense(tape.gradient(loss, weights)), graph


def _dense(tensors):
    return [np.asarray(tf.convert_to_tensor(tensor)) for tensor in tensors]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in MANY else []) for name in NETWORKS]
)
def test_gradients_agree_with_tensorflow(name):
    actual, expected, graph = gradients(network(name))
    assert {operation.type for operation in graph.get_operations()}.isdisjoint(LACKING)
    largest = max(np.abs(gradient).max() for gradient in expected)
    assert largest > 1e-3, "trivial gradients"
    for ours, theirs in zip(actual, expected, strict=True):
        # Gradients that cancel out, such as that of a bias before a norm, are compared relative to the
        # others.
        assert np.abs(ours - theirs).max() <= 1e-4 * max(np.abs(theirs).max(), 1e-3 * largest)


#: Operations that TensorFlow's own gradients use.
LACKING = {
    *(
        "AvgPoolGrad",
        "BiasAddGrad",
        "Conv2DBackpropFilter",
        "Conv2DBackpropInput",
        "EluGrad",
        "LeakyReluGrad",
    ),
    *("DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput", "MaxPoolGrad", "ReluGrad"),
    *("Relu6Grad", "ResizeBilinearGrad", "ResizeNearestNeighborGrad", "RsqrtGrad", "SeluGrad", "SigmoidGrad"),
    *("SoftplusGrad", "SoftsignGrad", "SqrtGrad", "StridedSliceGrad", "TanhGrad", "UnsortedSegmentSum"),
}


def test_networks_with_images_of_a_free_size_cannot_be_trained():
    inputs = keras.Input((None, 6, 3), name="image")
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(inputs))
    made = trained(keras.Model(inputs, layers.Dense(3)(x)))
    with pytest.raises(UntrainableError, match="unknown size"):
        made.signatures()
