#!/usr/bin/env bash
# emlearn 0.23.2 makes NumPy raise errors in the whole process when it is imported.
#
# Expected: importing a converter changes nothing for other libraries; NumPy ignores underflow and warns of overflow and
# division by zero unless the program says otherwise.
# Observed: one of its modules calls `numpy.seterr(all="raise")`, and `import emlearn` imports it. From then on, numbers
# that are too small for a float are errors, in code that has nothing to do with emlearn: SciPy's softmax of a confident
# network, kernels of scikit-learn for distant points, and squares of small gradients in an optimizer stop with
# "underflow encountered". A notebook that trains first and converts later works once, and fails when its cells run
# again.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet emlearn==0.23.2 scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
cd "$directory"
"$directory/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from scipy.special import softmax
from sklearn.gaussian_process.kernels import RBF

print("emlearn", version("emlearn"), "NumPy", np.__version__)


def outcome(function):
    """Return the result of the function as text, or its error."""
    try:
        return str(function())
    except FloatingPointError as error:
        return str(error)


FUNCTIONS = {
    "softmax of 0 and -1000": lambda: softmax([0.0, -1000.0]),
    "similarity of 0 and 100": lambda: RBF()([[0.0]], [[100.0]]),
    "square of a small gradient": lambda: np.square(np.float32([1e-30])),
}
before, mode = {name: outcome(function) for name, function in FUNCTIONS.items()}, np.geterr()
import emlearn  # noqa: E402, F401

after, changed = {name: outcome(function) for name, function in FUNCTIONS.items()}, np.geterr()
print(f"before: {before}, {mode}")
print(f"after: {after}, {changed}")
assert mode["under"] == "ignore" and set(changed.values()) == {"raise"}
assert all("[" in result for result in before.values()) and all("underflow" in result for result in after.values())
PYTHON
