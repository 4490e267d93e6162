#!/usr/bin/env bash
# TensorFlow 2.21.0 with oneDNN computes maximum(x, 2 * x) in a graph as the minimum of both.
#
# Expected: a tf.function, and with it Keras's predict, computes what the same code computes without a graph.
# Observed: maximum(x, c * x) becomes a leaky ReLU with the slope c whatever c is, which is right only up to c = 1. For c = 2,
# -1 becomes -2 instead of -1, and 1 becomes 1 instead of 2. A direct call of the Keras 3.15.1 model is right, predict is not.
# It needs oneDNN, which is enabled by default on processors with AVX-512: with TF_ENABLE_ONEDNN_OPTS=0 all results are right.
# LiteRT's file has the two operators, and is right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 ai-edge-litert==2.3.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
cat > maxima.py <<'PYTHON'
import os

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

ONEDNN = os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1"
x = np.array([[-2, -1, 1, 2]], np.float32)


def converted(graph):
    run = Interpreter(model_content=tf.lite.TFLiteConverter.from_concrete_functions([graph]).convert())
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], x)
    run.invoke()
    return run.get_tensor(run.get_output_details()[0]["index"])


print("tensorflow", tf.__version__, "keras", keras.__version__, "with" if ONEDNN else "without", "oneDNN")
for slope in (0.5, 2.0):

    def larger(values, slope=slope):
        return tf.maximum(values, slope * values)

    graph = tf.function(larger, input_signature=[tf.TensorSpec([1, 4])]).get_concrete_function()
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.ops.maximum(inputs, slope * inputs))
    expected = np.maximum(x, slope * x)
    results = {
        "eager": larger(tf.constant(x)).numpy(),
        "call": np.asarray(model(x)),
        "LiteRT": converted(graph),
        "graph": graph(tf.constant(x)).numpy(),
        "predict": model.predict(x, verbose=0),
    }
    for name, outputs in results.items():
        print(f"slope {slope}, {name}: {outputs[0].tolist()}, expected {expected[0].tolist()}")
        wrong = ONEDNN and slope > 1 and name in ("graph", "predict")
        np.testing.assert_array_equal(outputs, np.minimum(x, slope * x) if wrong else expected)
PYTHON
TF_ENABLE_ONEDNN_OPTS=0 "$directory/venv/bin/python" maxima.py 2>/dev/null
TF_ENABLE_ONEDNN_OPTS=1 "$directory/venv/bin/python" maxima.py 2>/dev/null
