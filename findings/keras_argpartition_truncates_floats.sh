#!/usr/bin/env bash
# Keras 3.15.1 on TensorFlow: argpartition compares floats by their integer parts, and returns places twice.
#
# Expected: the places that keras.ops.argpartition returns are a permutation, and the value at the place `kth` divides
# smaller ones from larger ones, as in NumPy and with other backends. A common use is to find the least or most
# probable.
# Observed: values are converted to int32 first, so that all probabilities below 1 are 0. Behind `kth`, places from the
# front are repeated, so that others are missing. There is no error or warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 jax==0.10.2 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
cat > partition.py <<'PYTHON'
import keras
import numpy as np

backend = keras.backend.backend()
print("keras", keras.__version__, "on", backend)


def is_partition(places, values, kth):
    """Return whether places are a permutation that is divided at a value."""
    if sorted(places) != list(range(len(values))):
        return False
    ordered = values[places]
    return bool(ordered[: kth + 1].max() == ordered[kth] == ordered[kth:].min())


for values in ([0.9, 0.1, 0.5, 0.3, 0.7], [2.9, 2.5, 2.1, 2.7]):
    values = np.float32(values)
    places = np.asarray(keras.ops.argpartition(values, 1))
    by_numpy = np.argpartition(values, 1)
    print(f"argpartition of {values} at 1: Keras {places}, NumPy {by_numpy}")
    assert is_partition(by_numpy, values, 1)
    assert is_partition(places, values, 1) is (backend == "jax")
PYTHON
for backend in jax tensorflow; do
    KERAS_BACKEND=$backend "$directory/venv/bin/python" partition.py 2>/dev/null
done
