#!/usr/bin/env bash
# ml_dtypes 0.6.0 with NumPy 2.4.6: the mean of a thousand ones in bfloat16 is 0.256, and 7 + 7 in int4 is -2.
#
# Expected: NumPy adds up small types with care, as its documentation of `sum` and `mean` says: sums of small integers
# are of the default integer, the mean of float16 is computed in float32, and sums are pairwise. A thousand ones in
# float16 have the sum 1000 and the mean 1, and 7 + 7 in int8 is 14.
# Observed: ml_dtypes registers its types as types of its own, so that none of this applies: each addition is rounded to
# the type, one after the other. A bfloat16 sum of ones stops at 256, one of float8_e4m3fn at 16, and int4 wraps around,
# without a warning. The mean of weights or activations that are stored in these types is far from that of PyTorch
# 2.13.0, which gives 1. Cast to float32 before `sum`, `mean` or `var`; products of vectors and matrices are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet ml_dtypes==0.6.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import ml_dtypes
import numpy as np

print("ml_dtypes", ml_dtypes.__version__, "numpy", np.__version__)
for dtype, stop in (
    (np.float16, 1_000),
    (ml_dtypes.bfloat16, 256),
    (ml_dtypes.float8_e4m3fn, 16),
    (ml_dtypes.float8_e5m2, 8),
):
    ones = np.ones(1_000, dtype)
    total, mean, dot = float(ones.sum()), float(ones.mean()), float(ones @ ones)
    variance = float(ones.var())
    print(f"{np.dtype(dtype)}: sum {total}, mean {mean:.3f}, variance {variance:.3f}, product with itself {dot}")
    assert total == stop
    assert (mean == 1) == (variance == 0) == (dtype is np.float16)

for dtype, total in ((np.int8, 14), (ml_dtypes.int4, -2)):
    sevens = np.full(2, 7, dtype)
    print(f"{np.dtype(dtype)}: the sum of 7 and 7 is {sevens.sum()}")
    assert int(sevens.sum()) == total
PYTHON
