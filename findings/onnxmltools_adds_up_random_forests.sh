#!/usr/bin/env bash
# onnxmltools 1.16.0 converts LightGBM's random forests to ONNX models that add up their trees instead of averaging
# them.
#
# Expected: the ONNX model computes what LightGBM 4.7.0 computes, within float32, or the conversion fails, as it does
# for objectives that are not supported.
# Observed: with `boosting_type="rf"`, predictions of ten trees are ten times too large, and probabilities are closer to
# 0 and 1 than they should be, while most labels are right. There is no warning. With `boosting_type="gbdt"` and "dart",
# whose trees are added up, both agree.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnxmltools==1.16.0 skl2onnx==1.20.0 scikit-learn==1.9.1 \
    onnxconverter-common==1.16.0 lightgbm==4.7.0 onnx==1.23.2 onnxruntime==1.32.0 pandas==3.1.1 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import lightgbm
import numpy as np
import onnxruntime
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

print(*(f"{name} {version(name)}" for name in ("onnxmltools", "lightgbm", "onnxruntime")))
generator = np.random.default_rng(0)
points = generator.normal(size=(600, 4)).astype(np.float32)
values = points @ [1, 2, -1, 0.5] + generator.normal(size=len(points))
TREES = 10


def converted(model):
    content = convert_lightgbm(model.booster_, initial_types=[("X", FloatTensorType([None, 4]))], zipmap=False)
    session = onnxruntime.InferenceSession(content.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": points})


for kind in ("gbdt", "dart", "rf"):
    options = dict(
        boosting_type=kind, n_estimators=TREES, bagging_freq=1, bagging_fraction=0.5, verbose=-1, num_threads=1
    )
    regressor = lightgbm.LGBMRegressor(**options).fit(points, values)
    by_onnx, right = converted(regressor)[0].ravel(), regressor.predict(points)
    classifier = lightgbm.LGBMClassifier(**options).fit(points, values > 1)
    labels, probabilities = converted(classifier)
    right_probabilities = classifier.predict_proba(points)
    print(
        f"{kind}: ONNX is {np.median(by_onnx / right):.3f} times LightGBM; the probabilities of the first example are "
        f"{probabilities[0].round(3)} instead of {right_probabilities[0].round(3)}"
    )
    factor = TREES if kind == "rf" else 1
    np.testing.assert_allclose(by_onnx, factor * right, rtol=1e-3, atol=1e-3)
    assert np.mean(labels == classifier.predict(points)) > 0.9
    assert (np.abs(probabilities - right_probabilities).max() > 0.1) == (kind == "rf")
PYTHON
