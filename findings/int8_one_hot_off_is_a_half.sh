#!/usr/bin/env bash
# TensorFlow 2.21.0 converts one_hot to int8 with an off value of 0.5 instead of 0.
#
# Expected: ones and zeros, which int8 represents exactly.
# Observed: 1.0 and 0.502. The off value is quantized separately, with a scale of 3.9e-9 and a zero point of 0, and its
# integer, 0, is copied into an output with a zero point of -128. Off values other than zero are right. A one_hot of
# integers with a cast does not help, because the converter fuses the two.
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


rows = [np.random.default_rng(seed).uniform(-5, 5, (1, 8)).astype(np.float32) for seed in range(100)]
print("tensorflow", tf.__version__)
for name, function, expected in (
    ("one_hot", lambda x: tf.one_hot(tf.argmax(x, -1), 8), [0.5, 1.0]),
    ("one_hot of whole numbers", lambda x: tf.cast(tf.one_hot(tf.argmax(x, -1), 8, 1, 0), tf.float32), [0.5, 1.0]),
    ("one_hot with -1 for off", lambda x: tf.one_hot(tf.argmax(x, -1), 8, 1.0, -1.0), [-1.0, 1.0]),
):
    network = converted(function, 8, rows)
    values = np.unique(np.round(outputs(network, rows[0])[0], 3))
    print(f"{name}: {values.tolist()}")
    assert np.allclose(values, expected, atol=0.02)
PYTHON
