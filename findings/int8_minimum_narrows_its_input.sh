#!/usr/bin/env bash
# TensorFlow 2.21.0 narrows the quantization range of the inputs of minimum, maximum and where in int8.
#
# Expected: other consumers of the same tensor get its values within one int8 quantization step.
# Observed: with y = min(x, 0) and z = x / 2 for one x between -5 and 5, z is never above 0, because x has the range of y.
# The same happens with max(x, -1), and the inputs of where(c, x, 0.1 * x) get the range of its result.
# keras.activations.celu, which uses its input in a maximum and a minimum, has no outputs above 0. There is no warning.
# Most networks are not affected: if a tensor has a single consumer, the clipped values are lost anyway.
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
print("tensorflow", tf.__version__, "keras", keras.__version__)


def largest_errors(operation):
    """Return the largest errors of an operation's output, and of half of its input as a second output."""

    def both(x):
        x = 1.0 * x + 0.25
        return operation(x), 0.5 * x

    network, errors = converted(both, 16, rows), []
    for row in rows:
        expected = [np.asarray(output) for output in both(row)]
        actual = outputs(network, row)
        in_order = [np.abs(a - e).max() for a, e in zip(actual, expected)]
        swapped = [np.abs(a - e).max() for a, e in zip(actual[::-1], expected)]
        errors.append(min(in_order, swapped, key=sum))
    return np.max(errors, axis=0)


for name, operation in (
    ("minimum(x, 0)", lambda x: tf.minimum(x, 0.0)),
    ("maximum(x, -1)", lambda x: tf.maximum(x, -1.0)),
    ("where(x > 0, 0.1 * x, x)", lambda x: tf.where(x > 0, 0.1 * x, x)),
):
    own, other = largest_errors(operation)
    print(f"{name}: largest error {own:.2f}; of half of x, {other:.2f}")
    assert own < 0.6 and other > 1.0
own, other = largest_errors(lambda x: tf.nn.relu(x))
print(f"relu(x): largest error {own:.2f}; of half of x, {other:.2f}")
assert own < 0.1 and other < 0.1

network = converted(keras.activations.celu, 16, rows)
largest = max(outputs(network, row)[0].max() for row in rows)
print(f"celu: the largest output is {largest:.2f}; expected 5.0")
assert largest < 0.1
PYTHON
