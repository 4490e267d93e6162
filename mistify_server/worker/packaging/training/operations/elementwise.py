"""Elementwise functions with gradients that LiteRT lacks."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from mistify_server.worker.packaging.rewriting.stable_operations import STABLE
from mistify_server.worker.packaging.training.operations.builtins import replaces

#: Computes the derivative at x from x and the function's value y.
Derivative: TypeAlias = Callable[[Any, Any], Any]

#: The constants of `tf.nn.selu`.
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772

#: Abramowitz and Stegun, 7.1.26: the error function with an error of at most 1.5e-7.
_ERF_P = 0.3275911
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _share(condition: Any) -> Any:
    return tf.cast(condition, tf.float32)


_DERIVATIVES: Mapping[str, Derivative] = {
    "Elu": lambda x, y: tf.where(x < 0, y + 1, tf.ones_like(y)),
    "Reciprocal": lambda x, y: -y * y,
    "Inv": lambda x, y: -y * y,
    "Relu": lambda x, y: tf.sign(y),
    "Relu6": lambda x, y: _share(tf.logical_and(x > 0, x < 6)),
    "Rsqrt": lambda x, y: -0.5 * y * y * y,
    "Selu": lambda x, y: tf.where(x < 0, y + _SELU_SCALE * _SELU_ALPHA, _SELU_SCALE * tf.ones_like(y)),
    "Sigmoid": lambda x, y: y * (1 - y),
    "Softplus": lambda x, y: tf.sigmoid(x),
    "Softsign": lambda x, y: tf.square(1 - tf.abs(y)),
    "Sqrt": lambda x, y: 0.5 / y,
    "Tanh": lambda x, y: 1 - y * y,
}


@replaces(*_DERIVATIVES)
def _with_derivative(operation: Any, x: Any) -> Any:
    derivative = _DERIVATIVES[operation.type]
    function = STABLE.get(operation.type) or partial(_raw, operation)

    @tf.custom_gradient
    def apply(x: Any) -> Any:
        y = function(x)
        return y, lambda upstream: upstream * derivative(x, y)

    return apply(x)


def _raw(operation: Any, x: Any) -> Any:
    (name,) = (argument.name for argument in operation.op_def.input_arg)
    return getattr(tf.raw_ops, operation.type)(**{name: x})


@replaces("LeakyRelu")
def _leaky_relu(operation: Any, x: Any) -> Any:
    alpha = operation.get_attr("alpha")

    @tf.custom_gradient
    def apply(x: Any) -> Any:
        slope = tf.where(x > 0, tf.ones_like(x), alpha * tf.ones_like(x))
        return tf.nn.leaky_relu(x, alpha), lambda upstream: upstream * slope

    return apply(x)


@replaces("Erf")
def _erf(operation: Any, x: Any) -> Any:
    return _error_function(x)


@replaces("Erfc")
def _complement(operation: Any, x: Any) -> Any:
    return 1 - _error_function(x)


def _error_function(x: Any) -> Any:
    """Return the error function, which LiteRT only has within a GELU; the gradient needs it separately."""

    @tf.custom_gradient
    def apply(x: Any) -> Any:
        bell = tf.exp(-x * x)
        t = 1 / (1 + _ERF_P * tf.abs(x))
        series = tf.zeros_like(x)
        for coefficient in _ERF:
            series = (series + coefficient) * t
        slope = 2 / math.sqrt(math.pi)
        return tf.sign(x) * (1 - series * bell), lambda upstream: upstream * slope * bell

    return apply(x)
