#!/usr/bin/env bash
# Keras 3.15.1 on TensorFlow: map_coordinates with "reflect" leaves out the first value when it mirrors the front.
#
# Expected: fill_mode="reflect" mirrors the values with the edge at both ends, as in SciPy and with JAX: 30, 20, 10 come in
# front of 10, 20, 30.
# Observed: on TensorFlow, places in front of the first value are off by one, so that 40, 30, 20 come in front. Behind the
# last value, the edge is repeated. There is no error or warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 jax==0.10.2 scipy==1.17.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
cat > coordinates.py <<'PYTHON'
import keras
import numpy as np
from scipy import ndimage

backend = keras.backend.backend()
print("keras", keras.__version__, "on", backend)
line, places = np.float32([10, 20, 30, 40]), np.float32([np.arange(-3, 7)])
by_keras = np.asarray(keras.ops.image.map_coordinates(line, places, order=1, fill_mode="reflect"))
by_scipy = ndimage.map_coordinates(line, places, order=1, mode="reflect")
print("map_coordinates from -3 to 6: Keras", by_keras, "SciPy", by_scipy)
assert by_scipy[:3].tolist() == [30, 20, 10]
assert by_keras[:3].tolist() == ([30, 20, 10] if backend == "jax" else [40, 30, 20])
assert (by_keras[3:] == by_scipy[3:]).all()
PYTHON
for backend in jax tensorflow; do
    KERAS_BACKEND=$backend "$directory/venv/bin/python" coordinates.py 2>/dev/null
done
