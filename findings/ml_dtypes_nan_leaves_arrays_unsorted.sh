#!/usr/bin/env bash
# ml_dtypes 0.6.0 with NumPy 2.4.6: a NaN in a bfloat16 or float8 array leaves the other numbers unsorted.
#
# Expected: np.sort puts NaN last and all numbers in order, as for float16, float32 and float64; unique values are
# unique, and nothing is lost in a partition or a search.
# Observed: without a warning, the sorted array has numbers in descending order around the NaN, np.unique returns some
# twice, and np.partition puts larger numbers in front of smaller ones. NumPy's code for NaN is for its own types; those
# of ml_dtypes compare by `<` alone, which is never true of NaN. Convert to float32 before sorting.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet ml_dtypes==0.6.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np

print("ml_dtypes", ml_dtypes.__version__, "numpy", np.__version__)
values = [3, 1, np.nan, 2, -1, 3, 0, 2]


def sorted_and_unique(dtype):
    """Return sorted numbers, those that np.unique and np.partition find, as float32, each without NaN."""
    array = np.array(values, dtype)
    arrays = np.sort(array), np.unique(array), np.partition(array, 3)[:3]
    return [each.astype(np.float32)[~np.isnan(each.astype(np.float32))].tolist() for each in arrays]


for dtype in (np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    in_order, unique, smallest = sorted_and_unique(dtype)
    print(f"{np.dtype(dtype).name}: sorted {in_order}, unique {unique}, three smallest {sorted(smallest)}")
    right = dtype in (np.float16, np.float32)
    assert (in_order == sorted(in_order)) is right
    assert (len(unique) == len(set(unique))) is right
    assert (sorted(smallest) == [-1, 0, 1]) is right
PYTHON
