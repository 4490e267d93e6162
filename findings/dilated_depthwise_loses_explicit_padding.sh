#!/usr/bin/env bash
# TensorFlow 2.21.0 converts a dilated depthwise convolution with explicit padding to one with SAME padding.
#
# Expected: padding that is given as numbers is kept, as for depthwise convolutions without dilation, and for other
# convolutions with it: the converter puts a PAD in front.
# Observed: there is no PAD, and the numbers are ignored. With all padding in front, as causal networks have, the result has
# the right shape, and each value is that of a later position; with other padding, the shape is another one than TensorFlow's.
# There is no warning. NumPy agrees with TensorFlow. With tf.pad and VALID, the file is right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 ai-edge-litert==2.3.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

rng = np.random.default_rng(0)
x, kernel = rng.normal(size=(1, 6, 7, 2)).astype(np.float32), rng.normal(size=(3, 3, 2, 1)).astype(np.float32)


def reference(pads, dilation):
    padded = np.pad(x, pads)
    height, width = (size - 2 * dilation for size in padded.shape[1:3])
    made = np.zeros((1, height, width, 2), np.float32)
    for row in range(3):
        for column in range(3):
            top, left = row * dilation, column * dilation
            made += padded[:, top : top + height, left : left + width] * kernel[row, column, :, 0]
    return made


def converted(graph):
    run = Interpreter(model_content=tf.lite.TFLiteConverter.from_concrete_functions([graph]).convert())
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], x)
    run.invoke()
    return run.get_tensor(run.get_output_details()[0]["index"])


def explicit(pads, dilation):
    return lambda image: tf.nn.depthwise_conv2d(image, kernel, [1] * 4, pads, dilations=[dilation] * 2)


def separate(pads, dilation):
    return lambda image: tf.nn.depthwise_conv2d(
        tf.pad(image, pads), kernel, [1] * 4, "VALID", dilations=[dilation] * 2
    )


causal, other = [[0, 0], [4, 0], [4, 0], [0, 0]], [[0, 0], [1, 2], [2, 1], [0, 0]]
same = reference([[0, 0], [2, 2], [2, 2], [0, 0]], 2)
print("tensorflow", tf.__version__)
for name, made, pads, dilation, right in (
    ("causal", explicit, causal, 2, False),
    ("other", explicit, other, 2, False),
    ("causal, tf.pad", separate, causal, 2, True),
    ("other, no dilation", explicit, other, 1, True),
):
    graph = tf.function(made(pads, dilation), input_signature=[tf.TensorSpec(x.shape)]).get_concrete_function()
    expected, in_litert = reference(pads, dilation), converted(graph)
    np.testing.assert_allclose(graph(tf.constant(x)), expected, atol=1e-5)
    first, right_first = in_litert.flat[0], expected.flat[0]
    print(f"{name}: first value {first:.3f} of {in_litert.shape}, expected {right_first:.3f} of {expected.shape}")
    np.testing.assert_allclose(in_litert, expected if right else same, atol=1e-5)
    assert right or in_litert.shape != expected.shape or not np.allclose(in_litert, expected, atol=0.1)
PYTHON
