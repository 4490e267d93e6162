#!/usr/bin/env bash
# Keras 3.15.1 on TensorFlow ranks -0.0 below 0.0 in argmax and argmin, and networks with them cannot be converted.
#
# Expected: equal values tie, and the first of them is returned, as its documentation and keras.ops.max suggest.
# Observed: keras.ops.argmax of [-0.0, 0.0] is 1, and keras.ops.argmin of [0.0, -0.0] is 1. To find the sign of a zero, the
# graph looks at bits, for which LiteRT has no operator: the converter refuses a network with argmax of floats, unless the
# operators of TensorFlow are allowed.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$directory/venv/bin/python" - <<'PYTHON'
import keras
import numpy as np
import tensorflow as tf

rows = np.float32([[-0.0, 0.0], [0.0, -0.0]])
inputs = keras.Input((2,))
model = keras.Model(inputs, keras.ops.argmax(inputs, axis=-1))
traced = tf.function(lambda x: model(x), input_signature=[tf.TensorSpec([2, 2])]).get_concrete_function()
try:
    tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert()
except Exception as error:
    refused = str(error)
else:
    refused = ""

print("keras", keras.__version__, "tensorflow", tf.__version__)
places_by = {
    "numpy argmax": rows.argmax(-1),
    "tensorflow argmax": tf.argmax(rows, -1).numpy(),
    "keras argmax": np.asarray(keras.ops.argmax(rows, axis=-1)),
    "numpy argmin": rows.argmin(-1),
    "keras argmin": np.asarray(keras.ops.argmin(rows, axis=-1)),
}
for name, places in places_by.items():
    print(f"{name}: {places.tolist()}")
assert places_by["numpy argmax"].tolist() == places_by["tensorflow argmax"].tolist() == [0, 0]
assert places_by["keras argmax"].tolist() == [1, 0]
assert places_by["numpy argmin"].tolist() == [0, 0] and places_by["keras argmin"].tolist() == [0, 1]
print("conversion to the built-in operators of LiteRT is refused because of", *(
    name for name in ("tf.BitwiseAnd", "tf.ArgMax") if name in refused
))
assert "tf.BitwiseAnd" in refused
PYTHON
