#!/usr/bin/env bash
# TensorFlow 2.21.0 converts the equal weights of two layers to one tensor, and leaves out a bias of zeros.
#
# Expected: each layer reads a kernel and a bias of its own, so that a tool that edits a `.tflite` can change one layer.
# Observed: layers with equal kernels, such as two that start from the same checkpoint, read the same tensor: to cut or
# tune one of them changes the other. A layer whose bias is all zero has no bias to change, although the same layer with
# any other bias has one. The file of a network therefore depends on the values of its weights.
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

KERNEL = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
BIAS = np.arange(1, 7, dtype=np.float32)


def layers_of(kernels, biases):
    """Return the tensors that each fully connected operator reads besides its activation."""
    variables = [(tf.Variable(kernel), tf.Variable(bias)) for kernel, bias in zip(kernels, biases)]

    def network(x):
        for kernel, bias in variables:
            x = tf.nn.relu(tf.matmul(x, kernel) + bias)
        return x

    signature = [tf.TensorSpec([1, 6])]
    traced = tf.function(network, input_signature=signature, autograph=False).get_concrete_function()
    interpreter = tf.lite.Interpreter(
        model_content=tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert(),
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    operators = [one for one in interpreter._get_ops_details() if one["op_name"] == "FULLY_CONNECTED"]
    return [[int(tensor) for tensor in operator["inputs"][1:]] for operator in operators]


print("tensorflow", tf.__version__)
different = layers_of([KERNEL, KERNEL + 1], [BIAS, BIAS + 1])
equal = layers_of([KERNEL, KERNEL], [BIAS, BIAS])
zero = layers_of([KERNEL, KERNEL + 1], [BIAS, 0 * BIAS])
for name, layers in (("different weights", different), ("equal weights", equal), ("a bias of zeros", zero)):
    print(f"{name}: kernel and bias of each layer are the tensors {layers}")
assert len({tensor for layer in different for tensor in layer}) == 4
assert equal[0] == equal[1] and len(set(equal[0])) == 2
assert len(zero[0]) == 2 and zero[0][1] >= 0
assert len(zero[1]) == 1 or zero[1][1] < 0
PYTHON
