#!/usr/bin/env bash
# TensorFlow 2.21.0 converts reverse to an int8 operator that copies integers between tensors of different scales.
#
# Expected: reverse(x) has the values of x.
# Observed: if x is a slice of a tensor with larger values elsewhere, the result is several times too small. The slice
# keeps the scale of the whole tensor, the output of REVERSE_V2 gets a scale from its own values, and the kernel copies
# the integers unchanged. `tf.gather` with reversed indices is right. This affects models that reverse the output of a
# pooling or a slice, such as backward recurrent layers.
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


def converted(function, width, examples=None):
    traced = tf.function(function, input_signature=[tf.TensorSpec([1, width])]).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced])
    if examples is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([row] for row in examples)
    return converter.convert()


def outputs(network, row):
    interpreter = tf.lite.Interpreter(model_content=network)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], row)
    interpreter.invoke()
    return [interpreter.get_tensor(entry["index"]) for entry in interpreter.get_output_details()]


rng = np.random.default_rng(0)
rows = [rng.uniform(-5, 5, (1, 16)).astype(np.float32) for _ in range(100)]
for row in rows:
    row[:, :4] /= 10
print("tensorflow", tf.__version__)


def part(x):
    return (1.5 * x)[:, :4]


for name, function, is_right in (
    ("reverse", lambda x: tf.reverse(part(x), [1]), False),
    ("gather", lambda x: tf.gather(part(x), [3, 2, 1, 0], axis=1), True),
):
    network, row = converted(function, 16, rows), rows[0]
    actual, expected = outputs(network, row)[0], np.asarray(function(row))
    print(f"{name}: {np.round(actual, 2).tolist()}, expected {np.round(expected, 2).tolist()}")
    assert (np.abs(actual - expected).max() < 0.1) == is_right
PYTHON
