#!/usr/bin/env bash
# tf2onnx 1.17.0 puts values into other places than TensorFlow 2.21.0, if places are negative or repeated.
#
# Expected: as TensorFlow documents, `one_hot` of an index outside of the depth, such as -1 for padding, has no hot
# place; `scatter_nd` adds up values of one place; and `unsorted_segment_sum` drops values of negative segments.
# Observed: ONNX counts negative places from the end, and replaces values at repeated places. -1 is hot at the last
# place, the values of segment -1 are in the last segment if it is empty, and `scatter_nd` keeps the last value alone,
# without a warning. So padding belongs to the last class, and histograms and sums of messages in graph networks are too
# small. Places that are named once and are not negative are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 \
    requests==2.34.2
"$directory/venv/bin/pip" install --quiet --no-deps tf2onnx==1.17.0
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx

print(*(f"{name} {version(name)}" for name in ("tf2onnx", "tensorflow", "onnxruntime")))


def both(function, *inputs):
    """Return the results of TensorFlow and of the ONNX model."""
    signature = [tf.TensorSpec(array.shape, array.dtype) for array in inputs]
    traced = tf.function(function, input_signature=signature, autograph=False)
    model, _ = tf2onnx.convert.from_function(traced, input_signature=signature, opset=18)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return traced(*inputs).numpy(), session.run(None, dict(zip(names, inputs)))[0]


places = np.array([0, 2, 2, 0, -1], np.int32)
values = np.array([1, 2, 3, 4, 5], np.float32)
for name, function, right, wrong in (
    ("one_hot", lambda p, v: tf.one_hot(p[3:], 3), [[1, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 1]]),
    ("scatter_nd", lambda p, v: tf.scatter_nd(p[:4, None], v[:4], [3]), [5, 0, 5], [4, 0, 3]),
    ("unsorted_segment_sum", lambda p, v: tf.math.unsorted_segment_sum(v, p, 4), [5, 0, 5, 0], [5, 0, 5, 5]),
):
    by_tensorflow, by_onnx = both(function, places, values)
    print(f"{name}: TensorFlow {by_tensorflow.tolist()}, ONNX {by_onnx.tolist()}")
    np.testing.assert_array_equal(by_tensorflow, right)
    np.testing.assert_array_equal(by_onnx, wrong)
PYTHON
