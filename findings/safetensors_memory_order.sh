#!/usr/bin/env bash
# safetensors 0.8.0 (with NumPy 2.3.5) saves the raw memory of an array and ignores its strides.
#
# Expected: `load(save({"a": array}))["a"]` equals `array` for any array, or `save` refuses the array.
# Observed: transposed arrays and arrays in Fortran order are loaded with the right shape and dtype, but with permuted
# values. There is no error or warning, and sums and norms are unchanged, so checks of those do not detect it. Call
# `numpy.ascontiguousarray` before `save` as a workaround.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet safetensors==0.8.0 numpy==2.3.5
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load, save


def returned(array):
    return load(save({"a": array}))["a"]


rows = np.arange(6, dtype=np.float32).reshape(2, 3)
transposed, fortran = rows.T, np.asfortranarray(rows)
print("safetensors", version("safetensors"), "numpy", np.__version__)
for name, array in (("C order", rows), ("transposed", transposed), ("Fortran order", fortran)):
    print(f"{name}: saved {array.tolist()}, came back {returned(array).tolist()}")
assert np.array_equal(returned(rows), rows)
for array in (transposed, fortran):
    back = returned(array)
    assert back.shape == array.shape and back.dtype == array.dtype
    assert not np.array_equal(back, array)
    assert np.linalg.norm(back) == np.linalg.norm(array)
    assert np.array_equal(returned(np.ascontiguousarray(array)), array)
PYTHON
