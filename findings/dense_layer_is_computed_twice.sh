#!/usr/bin/env bash
# TensorFlow 2.21.0 converts a matrix product to two products if it is used both with and without relu.
#
# Expected: one FULLY_CONNECTED and one RELU, as for a convolution one CONV_2D and one RELU.
# Observed: two FULLY_CONNECTED, one of them with a fused relu. The file contains the weights once, but the product is
# computed twice and its weights are packed twice. So max(h, 0) + f(h) of a large layer h costs twice as much.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - <<'PYTHON'
import numpy as np
import tensorflow as tf


def operators(function):
    traced = tf.function(function, input_signature=[tf.TensorSpec([1, 16])]).get_concrete_function()
    network = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()
    without_delegates = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = tf.lite.Interpreter(
        model_content=network, experimental_op_resolver_type=without_delegates
    )
    return [operator["op_name"] for operator in interpreter._get_ops_details()]


kernel = tf.constant(np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32))


def dense(x):
    h = tf.matmul(x, kernel)
    return tf.nn.relu(h) + h


def convolution(x):
    h = tf.nn.conv2d(tf.reshape(x, (1, 4, 4, 1)), tf.reshape(kernel, (4, 4, 1, 16)), 1, "SAME")
    return tf.nn.relu(h) + h


print("tensorflow", tf.__version__)
print("a matrix product:", operators(dense))
print("a convolution:", operators(convolution))
assert operators(dense).count("FULLY_CONNECTED") == 2
assert operators(convolution).count("CONV_2D") == 1
PYTHON
