#!/usr/bin/env bash
# skl2onnx 1.20.0 ignores `weights="distance"` of nearest neighbours: far ones count as much as near ones.
#
# Expected: the ONNX model computes what the scikit-learn 1.9.1 model computes, up to the precision of float32, or the
# conversion fails, as it does for metrics and options that are not supported.
# Observed: neighbours have equal weights, as with `weights="uniform"`, without a warning. A point that is known exactly
# gets the mean of its neighbours instead of its own value, probabilities are multiples of 1/k, and a few percent of
# labels change. With `weights="uniform"`, both agree.
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
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

print(*(f"{name} {version(name)}" for name in ("skl2onnx", "scikit-learn", "onnxruntime")))
generator = np.random.default_rng(0)
points = generator.normal(size=(200, 2)).astype(np.float32)
values = (points @ [3, 1]).astype(np.float32)
classes = (values > 0).astype(int) + (values > 3)
others = generator.normal(size=(300, 2)).astype(np.float32)
others[0] = points[0]


def converted(model):
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    content = to_onnx(model, points[:1], options=options).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": others})


for weights in ("uniform", "distance"):
    regressor = KNeighborsRegressor(5, weights=weights).fit(points, values)
    by_onnx = converted(regressor)[0].ravel()
    by_sklearn = regressor.predict(others)
    uniform = KNeighborsRegressor(5).fit(points, values).predict(others)
    classifier = KNeighborsClassifier(5, weights=weights).fit(points, classes)
    labels, probabilities = converted(classifier)
    changed = np.mean(labels != classifier.predict(others))
    print(
        f"{weights}: values differ by up to {np.abs(by_onnx - by_sklearn).max():.4f}, "
        f"probabilities by up to {np.abs(probabilities - classifier.predict_proba(others)).max():.4f}, "
        f"{changed:.1%} of labels"
    )
    print(f"  the value {values[0]:.4f} of a known point: scikit-learn {by_sklearn[0]:.4f}, ONNX {by_onnx[0]:.4f}")
    np.testing.assert_allclose(by_onnx, uniform, atol=1e-4)
    if weights == "uniform":
        np.testing.assert_allclose(by_onnx, by_sklearn, atol=1e-4)
    else:
        assert abs(by_sklearn[0] - values[0]) < 1e-5 and np.abs(by_onnx - by_sklearn).max() > 0.1
    assert (changed > 0) == (weights == "distance")
PYTHON
