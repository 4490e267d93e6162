#!/usr/bin/env bash
# TensorFlow 2.21.0 converts a sum to int16 with the scale of its input, so that no sum exceeds the largest input.
#
# Expected: with 16-bit activations, which are there for accuracy, the sum of eight values of 3 is 24 within a step, as in int8.
# Observed: SUM has the scale of its input as its output's: the sum of eight values of 3 between 0 and 4 is 4, as is that of
# 64. There is no warning, and calibration has seen the sums. A mean is right, and so is a matrix product with ones.
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

INT16 = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
rng = np.random.default_rng(0)


def result(function, count, operators):
    x = np.full((1, count), 3, np.float32)
    examples = [rng.uniform(0, 4, x.shape).astype(np.float32) for _ in range(100)]
    examples += [np.full_like(x, 4), np.zeros_like(x)]
    graph = tf.function(function, input_signature=[tf.TensorSpec(x.shape)]).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([example] for example in examples)
    converter.target_spec.supported_ops = [operators]
    run = Interpreter(model_content=converter.convert())
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], x)
    run.invoke()
    assert {tensor["dtype"] for tensor in run.get_tensor_details()} >= {np.int16 if operators is INT16 else np.int8}
    return float(run.get_tensor(run.get_output_details()[0]["index"]).ravel()[0]), float(function(x).numpy().ravel()[0])


def total(x):
    return tf.reduce_sum(x, -1)


def mean(x):
    return tf.reduce_mean(x, -1)


def product(x):
    return tf.matmul(x, np.ones((x.shape[-1], 1), np.float32))


print("tensorflow", tf.__version__)
for name, function, count, operators, saturated in (
    ("sum in int16", total, 8, INT16, True),
    ("sum in int16", total, 64, INT16, True),
    ("mean in int16", mean, 8, INT16, False),
    ("product with ones in int16", product, 8, INT16, False),
    ("sum in int8", total, 8, tf.lite.OpsSet.TFLITE_BUILTINS_INT8, False),
):
    in_integers, expected = result(function, count, operators)
    print(f"{name} of {count} values: {in_integers:.3f}, expected {expected:.3f}")
    np.testing.assert_allclose(in_integers, 4 if saturated else expected, rtol=0.01)
PYTHON
