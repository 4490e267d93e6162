"""Matrix products, biases and cross entropies with gradients for LiteRT."""

from typing import Any

import tensorflow as tf

from mistify_server.worker.packaging.training.operations.builtins import replaces


@replaces("MatMul")
def _product(operation: Any, a: Any, b: Any) -> Any:
    """Replace a matrix product by one of three-dimensional tensors.

    LiteRT's product of two matrices is only fast for constant weights.
    """
    transposed = {
        "transpose_a": operation.get_attr("transpose_a"),
        "transpose_b": operation.get_attr("transpose_b"),
    }
    return tf.squeeze(tf.matmul(tf.expand_dims(a, 0), tf.expand_dims(b, 0), **transposed), 0)


@replaces("BiasAdd")
def _bias(operation: Any, x: Any, bias: Any) -> Any:
    @tf.custom_gradient
    def add(x: Any, bias: Any) -> Any:
        return x + bias, lambda upstream: (
            upstream,
            tf.reduce_sum(upstream, list(range(upstream.shape.rank - 1))),
        )

    return add(x, bias)


@replaces("SparseSoftmaxCrossEntropyWithLogits")
def _class_entropy(operation: Any, logits: Any, classes: Any) -> list[Any]:
    """Replace a cross entropy with class targets; its second output, the gradient, is unused."""
    count = logits.shape[-1] or tf.shape(logits)[-1]  # unknown for a free number of positions
    return _entropy(logits, tf.one_hot(classes, count))


@replaces("SoftmaxCrossEntropyWithLogits")
def _entropies(operation: Any, logits: Any, shares: Any) -> list[Any]:
    return _entropy(logits, shares)


def _entropy(logits: Any, shares: Any) -> list[Any]:
    return [-tf.reduce_sum(shares * tf.nn.log_softmax(logits), -1)]
