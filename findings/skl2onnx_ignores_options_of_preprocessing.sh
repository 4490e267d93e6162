#!/usr/bin/env bash
# skl2onnx 1.20.0 ignores options of preprocessing, so that a converted pipeline feeds other numbers to its network.
#
# Expected: a converted step computes what scikit-learn 1.9.1 computes, or its conversion fails, as it does for
# `OneHotEncoder(min_frequency=...)` and others that are not supported.
# Observed, without a warning: `MaxAbsScaler(clip=True)` does not clip; `SimpleImputer(add_indicator=True)` has no
# columns that tell which values were missing; `OrdinalEncoder(encoded_missing_value=-2)` gives missing values the code
# of unknown ones; `Normalizer("max")` divides by the largest number instead of the largest magnitude, so that signs
# change if all numbers are negative, and the result is not limited to the range from -1 to 1.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet skl2onnx==1.20.0 scikit-learn==1.9.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, Normalizer, OrdinalEncoder

print(*(f"{name} {version(name)}" for name in ("skl2onnx", "scikit-learn", "onnxruntime")))
nan = np.nan
encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
for step, examples, others, right, wrong in (
    (MaxAbsScaler(clip=True), [[1], [2]], [[1], [8]], [[0.5], [1]], [[0.5], [4]]),
    (SimpleImputer(add_indicator=True), [[1], [3], [nan]], [[1], [nan]], [[1, 0], [2, 1]], [[1], [2]]),
    (encoder, [[0], [1], [nan]], [[1], [7], [nan]], [[1], [-1], [-2]], [[1], [-1], [-1]]),
    (Normalizer("max"), [[1, 2]], [[1, -4], [-1, -2]], [[0.25, -1], [-0.5, -1]], [[1, -4], [1, 2]]),
):
    examples, others = np.float32(examples), np.float32(others)
    step.fit(examples)
    content = to_onnx(step, examples[:1]).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (by_onnx,) = session.run(None, {"X": others})
    by_sklearn = step.transform(others)
    print(f"{step}: {others.tolist()} become {by_sklearn.tolist()}, by ONNX {by_onnx.tolist()}")
    np.testing.assert_allclose(by_sklearn, right)
    np.testing.assert_allclose(by_onnx, wrong)
PYTHON
