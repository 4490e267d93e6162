#!/usr/bin/env bash
# faiss 1.15.1 does not find the nearest neighbours by Jensen-Shannon divergence or Canberra distance, if they have a
# zero where the query has one.
#
# Expected: a place where both vectors are zero adds nothing, as in SciPy 1.17.1 for both distances, because x log x and
# |x - y| tend to zero; a vector is the nearest neighbour of itself. Empty bins of histograms, features after a ReLU and
# words that a text lacks are such places.
# Observed: the distance becomes 0 * log(0 / 0), or 0 / 0, which is NaN, and `search` leaves such vectors out without a
# warning. A vector is not found by itself, neighbours without a shared zero take the places of nearer ones, and where
# there are none, the answer is -1. For Jensen-Shannon, one zero in one of both is enough. `METRIC_BrayCurtis` and
# `METRIC_L1` find the same vectors.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet faiss-cpu==1.15.1 scipy==1.17.1 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import faiss
import numpy as np
import scipy
from scipy.spatial.distance import cdist

print("faiss", faiss.__version__, "scipy", scipy.__version__)
generator = np.random.default_rng(0)
bins, count = 16, 200
histograms = np.float32(generator.poisson(3, (count, bins)))
histograms /= histograms.sum(axis=1, keepdims=True)
with_zeros = (histograms == 0).any(axis=1)
queries = histograms[:50]

for name, metric, distance, lost in (
    ("Jensen-Shannon", faiss.METRIC_JensenShannon, "jensenshannon", True),
    ("Canberra", faiss.METRIC_Canberra, "canberra", True),
    ("Bray-Curtis", faiss.METRIC_BrayCurtis, "braycurtis", False),
    ("L1", faiss.METRIC_L1, "cityblock", False),
):
    exact = cdist(queries, histograms, distance)
    nearest = np.argmin(exact, axis=1)
    np.testing.assert_array_equal(nearest, np.arange(len(queries)))
    index = faiss.IndexFlat(bins, metric)
    index.add(histograms)
    _, found = index.search(queries, 1)
    wrong = found[:, 0] != nearest
    print(f"{name}: {wrong[with_zeros[:50]].mean():.2f} of queries with zeros do not find themselves, "
          f"{wrong[~with_zeros[:50]].mean():.2f} of the others; {np.mean(found == -1):.2f} find nothing")
    assert wrong[with_zeros[:50]].all() == lost and not wrong[~with_zeros[:50]].any()
    nan = np.isnan(faiss.pairwise_distances(queries, histograms, metric))
    assert nan.any() == lost and not np.isnan(exact).any()
PYTHON
