#!/usr/bin/env bash
# TensorFlow 2.21.0 clips weights above 65,504 when it converts them to float16.
#
# Expected: an error, a warning, or a weight that stays float32.
# Observed: weights of 100,000 become 65,504 in the file, and outputs are a third too small, without a warning.
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

kernel = tf.constant(np.full((64, 64), 1e5, np.float32))
traced = tf.function(lambda x: tf.matmul(x, kernel), input_signature=[tf.TensorSpec([1, 64])])
converter = tf.lite.TFLiteConverter.from_concrete_functions([traced.get_concrete_function()])
converter.optimizations = [tf.lite.Optimize.DEFAULT]
converter.target_spec.supported_types = [tf.float16]
interpreter = tf.lite.Interpreter(model_content=converter.convert())
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.eye(1, 64, dtype=np.float32))
interpreter.invoke()
output = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
print("tensorflow", tf.__version__, "a kernel of 100,000 gives", np.unique(output).tolist())
assert np.unique(output).tolist() == [65504.0]
PYTHON
