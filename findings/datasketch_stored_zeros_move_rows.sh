#!/usr/bin/env bash
# datasketch 2.0.0 hashes the rows of a sparse matrix from the values of other rows, if the matrix stores a zero.
#
# Expected: the weighted MinHashes of `minhash_many` depend on the values of the rows. A sparse matrix may store zeros,
# as after `matrix.data[...] = 0` or a multiplication by weights of which some are zero; it is equal to one without
# them.
# Observed: behind the first stored zero, each row is hashed from a part of its own values and a part of those of the
# next row, without a warning: zeros are left out of the values, but counted where rows begin. Equal rows lose their
# similarity, and rows with little in common gain some. If the zeros are more than the values of the last row, there is
# an error. `matrix.eliminate_zeros()` prevents both.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet datasketch==2.0.0 scipy==1.17.1 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from datasketch import WeightedMinHashGenerator
from scipy.sparse import csr_matrix

print("datasketch", version("datasketch"), "scipy", version("scipy"))
rows, features = 40, 60
generator = np.random.default_rng(0)
dense = generator.integers(1, 20, (rows, features)) * (generator.random((rows, features)) < 0.3)
dense[1::2] = dense[::2]  # each even row has a twin
dense[:, 0] = np.arange(rows) % 8 < 2  # a feature of ten rows, which is then weighted with zero

stored = csr_matrix(dense.astype(np.float32))
stored.data[stored.indices == 0] = 0
removed = stored.copy()
removed.eliminate_zeros()
assert stored.nnz == removed.nnz + 10 and (stored != removed).nnz == 0
exact = removed.toarray()


def similarities(matrix):
    """Return the similarity of each pair of twins by their hashes, and that of each row with the next pair's."""
    hashes = WeightedMinHashGenerator(features, 256).minhash_many(matrix)
    twins = [hashes[i].jaccard(hashes[i + 1]) for i in range(0, rows, 2)]
    others = [hashes[i].jaccard(hashes[i + 1]) for i in range(1, rows - 1, 2)]
    return np.array(twins), np.array(others)


def weighted_jaccard(a, b):
    return np.minimum(a, b).sum() / np.maximum(a, b).sum()


true_others = np.array([weighted_jaccard(exact[i], exact[i + 1]) for i in range(1, rows - 1, 2)])
for name, matrix in (("without stored zeros", removed), ("with stored zeros", stored)):
    twins, others = similarities(matrix)
    print(
        f"{name}: twins {twins.mean():.2f} (exactly 1.00), "
        f"others {others.mean():.2f} (exactly {true_others.mean():.2f})"
    )
    if matrix is removed:
        assert (twins == 1).all() and np.abs(others - true_others).max() < 0.15
    else:
        assert twins.mean() < 0.7 and np.abs(others - true_others).max() > 0.2
PYTHON
