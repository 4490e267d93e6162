#!/usr/bin/env bash
# TensorFlow 2.21.0 converts softplus to EXP, ADD and LOG, which overflow above 88.
#
# Expected: tf.nn.softplus(100) is 100, as in TensorFlow, and log_sigmoid(-100) is -100.
# Observed: the converted network returns infinity for both. For tf.nn.selu, the converter computes an exponential of all
# inputs and selects the right output afterwards. In int8, the calibrated range of this exponential is so large that the
# quantization steps are too coarse for the outputs.
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


row = np.float32([[1, 50, 88, 100, 1000]])
print("tensorflow", tf.__version__)
for name, function, sign in (
    ("softplus", tf.nn.softplus, 1),
    ("log_sigmoid of minus these", lambda x: tf.math.log_sigmoid(-x), -1),
):
    actual, expected = outputs(converted(function, 5), row)[0], np.asarray(function(row))
    print(f"{name}: {actual.tolist()}, expected {expected.tolist()}")
    assert np.isfinite(expected).all()
    assert (sign * actual[0, 3:] == np.inf).all()

errors = {}
rows = [np.random.default_rng(seed).uniform(-5, 5, (1, 16)).astype(np.float32) for seed in range(100)]
for name, function in (("elu", tf.nn.elu), ("selu", tf.nn.selu)):
    network = converted(function, 16, rows)
    errors[name] = error = max(np.abs(outputs(network, row)[0] - function(row)).max() for row in rows)
    print(f"{name} in int8, inputs from -5 to 5: largest error {error:.2f}")
assert errors["elu"] < 0.1 and errors["selu"] > 1.0
PYTHON
