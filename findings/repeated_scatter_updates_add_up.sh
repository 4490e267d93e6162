#!/usr/bin/env bash
# TensorFlow 2.21.0's converter to LiteRT turns tensor_scatter_nd_update into a sum, so that updates of one place add up.
#
# Expected: a place that several updates name has the value of one of them; which one is undefined (TensorFlow's
# documentation), and on CPUs it is the last. A cache or a buffer that is written twice has its latest content.
# Observed: the converted network adds the difference between each update and the old value to the old value, without a
# warning, so that the result is neither an update nor their sum. Places that are named once are right.
# keras.ops.scatter_update of Keras 3.15.1 is converted in the same way.
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

buffer, updates = np.float32([10, 20, 30, 40]), np.float32([1, 2, 3])
places = [[3], [1], [3]]


def with_tensorflow(buffer, updates):
    return tf.tensor_scatter_nd_update(buffer, places, updates)


def with_keras(buffer, updates):
    return keras.ops.scatter_update(buffer, np.array(places), updates)


print("tensorflow", tf.__version__, "keras", keras.__version__)
for write in (with_tensorflow, with_keras):
    traced = tf.function(
        write, input_signature=[tf.TensorSpec([4], name="buffer"), tf.TensorSpec([3], name="updates")]
    ).get_concrete_function()
    network = tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()
    run = Interpreter(model_content=network)
    run.allocate_tensors()
    for tensor in run.get_input_details():
        run.set_tensor(tensor["index"], buffer if "buffer" in tensor["name"] else updates)
    run.invoke()
    converted = run.get_tensor(run.get_output_details()[0]["index"]).tolist()
    own = traced(tf.constant(buffer), tf.constant(updates)).numpy().tolist()
    print(f"{write.__name__}: TensorFlow {own}, LiteRT {converted}")
    assert own == [10, 2, 30, 3]
    assert converted == [10, 2, 30, 40 + (1 - 40) + (3 - 40)]
PYTHON
