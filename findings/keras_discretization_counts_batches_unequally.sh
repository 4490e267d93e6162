#!/usr/bin/env bash
# Keras 3.15.1 counts the values of some batches twice, when Discretization learns its bins.
#
# Expected: `adapt` finds the quantiles of all values to within `epsilon`, 1 % by default, however they are divided into
# batches.
# Observed: a batch is represented by every n-th value, with n rounded down, but each of them counts for n before it is
# rounded. A batch of 199 values counts for 396, a batch of 200 for 200, and a batch of 299 for 447. If batches differ
# in their values as well, as in data in the order of time, the bins are far from the quantiles. A single array is
# right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np

print("keras", keras.__version__)
generator = np.random.default_rng(0)


def boundaries(batches):
    """Return the bounds of four bins that a layer learns from batches."""
    layer = keras.layers.Discretization(num_bins=4)
    layer.adapt(batches)
    return np.array(layer.bin_boundaries)


def error(bounds, values):
    """Return the largest difference between the share of values below a bound and the wanted share."""
    return max(abs((values <= bound).mean() - share) for bound, share in zip(bounds, (0.25, 0.5, 0.75)))


for sizes in ((200, 200), (199, 200), (200, 299), (199, 400)):
    batches = [np.float32(i + generator.random(size)) for i, size in enumerate(sizes)]
    values = np.concatenate(batches)
    once, parts = error(boundaries(values), values), error(boundaries(batches), values)
    print(f"batches of {sizes}: bins are off by {once:.1%} from one array, by {parts:.1%} from batches")
    assert once < 0.02
    assert parts < 0.02 if sizes == (200, 200) else parts > 0.05
PYTHON
