#!/usr/bin/env bash
# USearch 2.26.6 gives all vectors the same length, if an index stores them as int8, whatever its metric.
#
# Expected: `dtype="i8"` stores each number of a float32 vector with less precision, or refuses what does not fit, as
# `dtype="f16"` keeps lengths: squared distances and inner products are about those of float32.
# Observed: each vector, and each query, is divided by its length and multiplied by 127 first. That is right for "cos",
# but an index for "l2sq" finds a vector and its hundredfold to be the same, and one for "ip" ranks by the angle alone.
# Distances are in units of 1/127 squared. Of 100 queries in a plane, float16 finds the nearest neighbour of nearly all,
# and int8 that of a few; there is no warning. Vectors that are given as int8 are stored as they are.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet usearch==2.26.6 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import numpy as np
import usearch
from usearch.index import Index

print("USearch", usearch.__version__)


def index(vectors, metric, dtype):
    result = Index(ndim=vectors.shape[1], metric=metric, dtype=dtype)
    result.add(np.arange(len(vectors)), vectors)
    return result


pair = np.float32([[0.1, 0.2, 0.3, 0.4], [10, 20, 30, 40]])
for dtype, wrong in (("f16", False), ("i8", True)):
    for metric in ("l2sq", "ip"):
        distances = index(pair, metric, dtype).search(pair[0], 2, exact=True).distances
        print(f"{metric} of {dtype}: distances of a vector from itself and its hundredfold {distances.tolist()}")
        assert (distances[0] == distances[1]) == wrong
as_bytes = index(np.int8([[1, 2, 3, 4], [10, 20, 30, 40]]), "l2sq", "i8")
assert as_bytes.search(np.int8([1, 2, 3, 4]), 2, exact=True).distances.tolist() == [0, 81 * 30]

generator = np.random.default_rng(0)
vectors = generator.normal(size=(1000, 2)).astype(np.float32)
queries = vectors[:100] + generator.normal(size=(100, 2)).astype(np.float32) * 0.01
exact = ((queries[:, None] - vectors) ** 2).sum(2).argmin(1)
share = {}
for dtype in ("f16", "i8"):
    nearest = index(vectors, "l2sq", dtype).search(queries, 1, exact=True).keys[:, 0]
    share[dtype] = (nearest == exact).mean()
print(f"nearest neighbours found with f16 {share['f16']:.0%}, with i8 {share['i8']:.0%}")
assert share["f16"] > 0.9 and share["i8"] < 0.5
PYTHON
