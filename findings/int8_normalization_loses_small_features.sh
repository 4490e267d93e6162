#!/usr/bin/env bash
# TensorFlow 2.21.0 quantizes float32 inputs with one scale in front of a normalization that gives features the same range.
#
# Expected: the inputs of the int8 network are float32 and its first layer normalizes each feature, so that integers begin
# behind the normalization, where one step is a 255th of the range of all features.
# Observed: integers begin in front of it. With features that differ by a factor of a million, all but the largest are 0,
# and the outputs do not depend on them. There is no warning. With the two operators of the normalization denied by name
# (`denylisted_nodes`, which QuantizationDebugOptions offers), the outputs are right within a few percent.
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
from tensorflow import keras

ranges = np.array([1e-3, 0.1, 5.0, 2e3], np.float32)
rng = np.random.default_rng(0)
rows = (ranges * rng.normal(1.0, 1.0, (200, 4))).astype(np.float32)
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.Input((4,)),
        keras.layers.Normalization(mean=ranges, variance=ranges**2),
        keras.layers.Dense(16, "relu"),
        keras.layers.Dense(3),
    ]
)


def converter():
    made = tf.lite.TFLiteConverter.from_keras_model(model)
    made.optimizations = [tf.lite.Optimize.DEFAULT]
    made.representative_dataset = lambda: ([row[None]] for row in rows)
    return made


def outputs(network, inputs):
    interpreter = tf.lite.Interpreter(model_content=network)
    interpreter.allocate_tensors()
    results = []
    for row in inputs:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], row[None])
        interpreter.invoke()
        results.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0])
    return np.array(results)


def first_operators(network):
    interpreter = tf.lite.Interpreter(model_content=network)
    return [operator["op_name"] for operator in interpreter._get_ops_details()][:3]


print("tensorflow", tf.__version__, "keras", keras.__version__)
expected = np.asarray(model(rows))
plain = converter().convert()
names = [entry["name"] for entry in tf.lite.Interpreter(model_content=plain).get_tensor_details()]
scaling = [name for name in names if name.endswith(("/Sub", "/truediv", "Maximum1"))]

debug = tf.lite.experimental.QuantizationDebugOptions(denylisted_nodes=scaling)
debugger = tf.lite.experimental.QuantizationDebugger(
    converter=converter(), debug_dataset=lambda: ([row[None]] for row in rows[:1]), debug_options=debug
)
kept = debugger.get_nondebug_quantized_model()
for name, network in (("one scale", plain), ("normalization in float32", kept)):
    error = np.abs(outputs(network, rows) - expected).max() / np.ptp(expected)
    print(f"{name}: {first_operators(network)}, largest error {error:.1%} of the range of the outputs")
    if network is plain:
        assert first_operators(network)[0] == "QUANTIZE" and error > 0.2
    else:
        assert first_operators(network)[:2] == ["SUB", "MUL"] and error < 0.05

small = rows.copy()
small[:, 0] = 0  # a feature that matters as much as the others
moved = np.abs(outputs(plain, small) - outputs(plain, rows)).max()
print(f"one scale: without the smallest feature, the outputs change by {moved:.3g}; they should by "
      f"{np.abs(np.asarray(model(small)) - expected).max():.3g}")
assert moved == 0
PYTHON
