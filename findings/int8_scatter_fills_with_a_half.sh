#!/usr/bin/env bash
# TensorFlow 2.21.0 and LiteRT 2.3.0: scatter_nd in int8 fills the other places with the integer 0 instead of the number 0.
#
# Expected: tf.scatter_nd has zeros wherever no update goes, and tf.tensor_scatter_nd_update keeps the values there.
# Observed: the kernel writes the integer 0, which stands for half of the largest update if none is negative, since the zero
# point is -128. An update is converted to a mask of ones by scatter_nd, and a sum: all other values are halved, and a half of
# the update is added to them. There is no warning, and float32 is right. keras.ops.scatter_update of Keras 3.15.1 is converted
# in the same way.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 ai-edge-litert==2.3.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

rng = np.random.default_rng(0)
examples = [np.sort(rng.uniform(0, 4, (3, 1)), axis=0).astype(np.float32) for _ in range(100)]
examples += [np.float32([[0], [2], [4]])]
x, places = examples[-1], [[0]]


def scattered(values):
    return tf.scatter_nd(places, values[2:], [3, 1])


def updated(values):
    return tf.tensor_scatter_nd_update(values, places, values[2:])


def keras_updated(values):
    return keras.ops.scatter_update(values, np.array(places), values[2:])


def results(function, quantized):
    graph = tf.function(function, input_signature=[tf.TensorSpec([3, 1])]).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph])
    if quantized:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([example] for example in examples)
    run = Interpreter(model_content=converter.convert())
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], x)
    run.invoke()
    return run.get_tensor(run.get_output_details()[0]["index"]).ravel()


print("tensorflow", tf.__version__, "keras", keras.__version__)
for function, expected, wrong in (
    (scattered, [4, 0, 0], [4, 2, 2]),
    (updated, [4, 2, 4], [4, 3, 4]),
    (keras_updated, [4, 2, 4], [4, 3, 4]),
):
    in_float, in_int8 = results(function, False), results(function, True)
    print(f"{function.__name__}: {in_float.tolist()}, in int8 {in_int8.round(2).tolist()}")
    np.testing.assert_allclose(np.asarray(function(tf.constant(x))).ravel(), expected)
    np.testing.assert_allclose(in_float, expected, atol=1e-5)
    np.testing.assert_allclose(in_int8, wrong, atol=0.1)
PYTHON
