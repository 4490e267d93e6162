#!/usr/bin/env bash
# Flax 0.12.8 saves arrays without their byte order, and loads arrays of other shapes than the network has.
#
# Expected: `flax.serialization.from_bytes(target, to_bytes(target))` returns the same numbers, and refuses bytes whose
# arrays do not fit those of the target, as it refuses other names and other numbers of layers.
# Observed: an array of big-endian floats, as other formats and network protocols deliver them, comes back with the
# bytes of each number reversed: 1 and 2 become 4.6e-41 and 9.0e-44. Only names are compared with the target: a float16
# matrix of 4 x 5 replaces a float32 one of 2 x 3 without a warning, so that weights from another client or another
# width of the network fail later, or are broadcast.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 optax==0.2.8 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import flax
import numpy as np
from flax.serialization import from_bytes, to_bytes

print("Flax", flax.__version__)
for order in "<>":
    weights = np.array([1, 2], order + "f4")
    loaded = from_bytes(weights, to_bytes(weights))
    print(f"byte order {order}: {weights.tolist()} becomes {loaded.tolist()}")
    np.testing.assert_array_equal(loaded, weights.view("<f4"))
assert loaded.tolist() != weights.tolist()

target = {"kernel": np.zeros((2, 3), np.float32)}
loaded = from_bytes(target, to_bytes({"kernel": np.ones((4, 5), np.float16)}))["kernel"]
print(f"float32 of (2, 3) becomes {loaded.dtype} of {loaded.shape}")
assert loaded.shape == (4, 5) and loaded.dtype == np.float16
try:
    from_bytes(target, to_bytes({"bias": np.zeros(3)}))
except ValueError as error:
    print(f"another name is refused: {str(error)[:70]}")
else:
    raise AssertionError("another name was accepted")
PYTHON
