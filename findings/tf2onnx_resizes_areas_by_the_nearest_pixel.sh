#!/usr/bin/env bash
# tf2onnx 1.17.0 converts resizing by areas to the nearest pixel.
#
# Expected: `tf.image.resize(..., method="area")`, which averages all pixels of each area, is converted to averages, or
# refused, as "lanczos3", "gaussian" and "mitchellcubic" are.
# Observed: ResizeArea becomes a Resize with `mode="nearest"`, without a warning. An image of half the size has a
# quarter of the pixels, and lacks the others, so that the network behind it gets noise and aliases which it has not
# been trained with. TensorFlow 2.21.0 agrees with averages in NumPy.
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


image = np.random.default_rng(0).uniform(0, 255, (1, 6, 8, 1)).astype(np.float32)
for method in ("area", "bilinear", "nearest"):
    by_tensorflow, by_onnx = both(lambda x: tf.image.resize(x, (3, 4), method=method), image)
    difference = np.abs(by_onnx - by_tensorflow).max()
    print(f"{method}: largest difference {difference:.4f}")
    assert (difference > 10) == (method == "area")
    if method == "area":
        averages = image[0, :, :, 0].reshape(3, 2, 4, 2).mean((1, 3))
        np.testing.assert_allclose(by_tensorflow[0, :, :, 0], averages, rtol=1e-5)
        assert np.isin(by_onnx, image).all()
PYTHON
