#!/usr/bin/env bash
# tf2onnx 1.17.0 rounds quotients of integers towards zero, where TensorFlow 2.21.0 rounds them down.
#
# Expected: `a // b` and `a % b`, which are FloorDiv and FloorMod in TensorFlow, are what they are in Python and NumPy,
# as they are for floats in the same converter.
# Observed: they become Div of ONNX, which cuts the fraction off, and a Mod with the sign of the first number. -7 // 2
# is -3 instead of -4, and -7 % 2 is -1 instead of 1, without a warning. Relative positions, wrapped indices, cells of a
# grid and hours before an epoch are negative, and are off by one cell or outside of the range that the remainder should
# have. Floats and numbers that are not negative are right.
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


first, second = np.array([-7, -6, -1, 7, 7], np.int32), np.array([2, 2, 24, 2, -2], np.int32)
for name, function, exact in (
    ("a // b", lambda a, b: a // b, np.floor_divide),
    ("a % b", lambda a, b: a % b, np.remainder),
):
    for dtype in (np.int32, np.int64, np.float32):
        inputs = first.astype(dtype), second.astype(dtype)
        by_tensorflow, by_onnx = both(function, *inputs)
        print(f"{name} of {np.dtype(dtype)}: TensorFlow {by_tensorflow.tolist()}, ONNX {by_onnx.tolist()}")
        np.testing.assert_array_equal(by_tensorflow, exact(*inputs))
        if dtype is np.float32:
            np.testing.assert_array_equal(by_onnx, by_tensorflow)
        else:
            truncated = np.trunc(first / second).astype(dtype) if name == "a // b" else np.fmod(*inputs)
            np.testing.assert_array_equal(by_onnx, truncated)
            assert (by_onnx != by_tensorflow).sum() == 3
PYTHON
