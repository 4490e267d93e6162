#!/usr/bin/env bash
# TensorFlow 2.21.0: the floor division of floats and its remainder do not belong together.
#
# Expected: (x // y) * y + x % y is x, as the documentation of tf.math.floormod says, and as in Python, NumPy and PyTorch.
# Observed: 1 // 0.1 is 10 and 1 % 0.1 is 0.1, which together give 1.1. The remainder is exact, but the quotient is the floor
# of a division that was rounded before, and may be too large by one. It is the same in graphs, with XLA, and in Keras 3.15.1;
# the same network is right in LiteRT 2.3.0. Code that cuts a time or a position into a cell and a place in it gets a place
# at the end of the next cell.
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

x, y = np.array([1, 0.7, 5.5, 0.25], np.float32), np.array([0.1] * 4, np.float32)


def parts(values, steps):
    return [values // steps, values % steps]


def converted(graph):
    run = Interpreter(model_content=tf.lite.TFLiteConverter.from_concrete_functions([graph]).convert())
    run.allocate_tensors()
    for tensor in run.get_input_details():
        run.set_tensor(tensor["index"], x if "values" in tensor["name"] else y)
    run.invoke()
    both_parts = [run.get_tensor(tensor["index"]) for tensor in run.get_output_details()]
    return sorted(both_parts, key=np.max, reverse=True)  # the quotients are the larger ones


graph = tf.function(
    parts, input_signature=[tf.TensorSpec([4], name="values"), tf.TensorSpec([4], name="steps")]
).get_concrete_function()
exact = [float(one) // float(other) for one, other in zip(x, y, strict=True)]
print("tensorflow", tf.__version__, "keras", keras.__version__)
for name, (quotients, remainders), right in (
    ("NumPy", parts(x, y), True),
    ("eager", parts(tf.constant(x), tf.constant(y)), False),
    ("graph", graph(tf.constant(x), tf.constant(y)), False),
    ("XLA", tf.function(parts, jit_compile=True)(tf.constant(x), tf.constant(y)), False),
    ("Keras", (keras.ops.floor_divide(x, y), keras.ops.mod(x, y)), False),
    ("LiteRT", converted(graph), True),
):
    quotients, remainders = np.asarray(quotients), np.asarray(remainders)
    together = quotients * y + remainders
    print(f"{name}: {quotients.tolist()}, remainders {remainders.round(3).tolist()}, together {together.round(3).tolist()}")
    np.testing.assert_allclose(remainders, np.fmod(x, y), atol=1e-6)
    np.testing.assert_array_equal(quotients, exact if right else [10, 7, 55, 2])
    assert np.allclose(together, x, atol=1e-5) == right
PYTHON
