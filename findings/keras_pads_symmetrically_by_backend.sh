#!/usr/bin/env bash
# Keras 3.15.1 on PyTorch repeats the edge where keras.ops.pad is asked for symmetric padding.
#
# Expected: mode="symmetric" mirrors the values with the edge, as in NumPy, which its documentation refers to, and as on
# TensorFlow: 3, 2, 1 come in front of 1, 2, 3.
# Observed: on PyTorch, 1, 1, 1 come in front. There is no warning. With a padding of one, both are the same. A network that
# is trained on one backend and converted on the other, as for LiteRT, computes something else.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet keras==3.15.1 tensorflow==2.21.0 torch==2.13.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
cat > pads.py <<'PYTHON'
import keras
import numpy as np

x = np.arange(1, 6, dtype=np.float32)
torch = keras.backend.backend() == "torch"
print("keras", keras.__version__, keras.backend.backend())
for mode, width, right in (("symmetric", 1, True), ("reflect", 3, True), ("symmetric", 3, not torch)):
    padded = keras.ops.convert_to_numpy(keras.ops.pad(x, ((width, width),), mode=mode))
    expected = np.pad(x, width, mode=mode)
    print(f"{mode} by {width}: {padded.tolist()}, expected {expected.tolist()}")
    np.testing.assert_array_equal(padded, expected if right else np.pad(x, width, mode="edge"))
PYTHON
for backend in tensorflow torch; do
  KERAS_BACKEND=$backend "$directory/venv/bin/python" pads.py 2>/dev/null
done
