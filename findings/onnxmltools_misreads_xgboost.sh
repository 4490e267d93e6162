#!/usr/bin/env bash
# onnxmltools 1.16.0 converts XGBoost's models of several outputs, parallel trees and some objectives to others.
#
# Expected: the ONNX model computes what XGBoost 3.2.0 computes, within float32, or the conversion fails, as it does for
# `binary:logitraw` and for trees with vectors in their leaves.
# Observed, without a warning: regressors of probabilities or hazards (`reg:logistic`, `binary:logistic`,
# `survival:cox`) give sums of trees, without a sigmoid or an exponential; `multi:softmax` gives sums of trees as
# probabilities. With three classes and `num_parallel_tree`, as in XGBRFClassifier, trees are added to other classes, so
# that most labels are wrong. Of several targets, quantiles or labels, the first output is the sum of the trees of all,
# and the others are 0 or missing. Parallel trees of one output are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet onnxmltools==1.16.0 skl2onnx==1.20.0 scikit-learn==1.9.1 \
    xgboost-cpu==3.2.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnxruntime
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from xgboost import XGBClassifier, XGBRegressor, XGBRFClassifier

print(*(f"{name} {version(name)}" for name in ("onnxmltools", "xgboost-cpu", "onnxruntime")))
generator = np.random.default_rng(0)
points = generator.normal(size=(500, 4)).astype(np.float32)
values = points @ [1, 2, -1, 0.5] + generator.normal(size=len(points)) * 0.1
positive, three, times = values > 0, np.digitize(values, [-1, 1]), np.exp(values / 3)


def both(model, targets):
    """Return the results of XGBoost and of the ONNX model: probabilities of a classifier, values of a regressor."""
    model.set_params(n_estimators=5, n_jobs=1).fit(points, targets)
    content = convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 4]))])
    session = onnxruntime.InferenceSession(content.SerializeToString(), providers=["CPUExecutionProvider"])
    by_onnx = session.run(None, {"X": points})[-1]
    by_xgboost = model.predict_proba(points) if isinstance(model, XGBClassifier) else model.predict(points)
    by_onnx = by_onnx[:, 0] if by_onnx.shape[1] == by_xgboost.ndim == 1 else by_onnx
    return by_xgboost.astype(float), by_onnx.astype(float)


for model, targets in (
    (XGBRegressor(), values),
    (XGBRegressor(num_parallel_tree=3), values),
    (XGBClassifier(), three),
    (XGBRFClassifier(), positive),
):
    by_xgboost, by_onnx = both(model, targets)
    print(f"{type(model).__name__}, {model.objective}: largest difference {np.abs(by_onnx - by_xgboost).max():.1e}")
    np.testing.assert_allclose(by_onnx, by_xgboost, atol=1e-5)

for objective, targets in (("reg:logistic", positive), ("binary:logistic", positive), ("survival:cox", times)):
    by_xgboost, by_onnx = both(XGBRegressor(objective=objective), targets)
    print(f"{objective}: XGBoost {by_xgboost[:3].round(3).tolist()}, ONNX {by_onnx[:3].round(3).tolist()}")
    margins = np.log(by_xgboost) if objective == "survival:cox" else np.log(by_xgboost / (1 - by_xgboost))
    assert np.abs(by_onnx - by_xgboost).max() > 0.5 and np.ptp(by_onnx - margins) < 1e-4 < np.ptp(by_onnx)

by_xgboost, by_onnx = both(XGBClassifier(objective="multi:softmax"), three)
print(f"multi:softmax: XGBoost {by_xgboost[0].round(3).tolist()}, ONNX {by_onnx[0].round(3).tolist()}")
exponentials = np.exp(by_onnx)
np.testing.assert_allclose(exponentials / exponentials.sum(1, keepdims=True), by_xgboost, rtol=1e-4)

by_xgboost, by_onnx = both(XGBRFClassifier(), three)
agreement = (by_xgboost.argmax(1) == by_onnx.argmax(1)).mean()
print(f"three classes of a random forest: {agreement:.0%} of the labels agree")
assert agreement < 0.5

by_xgboost, by_onnx = both(XGBRegressor(), np.c_[values, 2 * values])
print(f"two targets: XGBoost {by_xgboost[0].round(3).tolist()}, ONNX {by_onnx[0].round(3).tolist()}")
assert (by_onnx[:, 1] == 0).all() and np.corrcoef(by_onnx[:, 0], by_xgboost.sum(1))[0, 1] > 0.999

quantiles = XGBRegressor(objective="reg:quantileerror", quantile_alpha=[0.1, 0.5, 0.9])
by_xgboost, by_onnx = both(quantiles, values)
print(f"three quantiles: XGBoost {by_xgboost[0].round(3).tolist()}, ONNX {by_onnx[0].round(3).tolist()}")
assert (by_onnx[:, 1:] == 0).all() and np.corrcoef(by_onnx[:, 0], by_xgboost.sum(1))[0, 1] > 0.999

by_xgboost, by_onnx = both(XGBClassifier(), np.c_[positive, three > 0].astype(int))
print(f"two labels: XGBoost {by_xgboost[0].round(3).tolist()}, ONNX {by_onnx[0].round(3).tolist()}")
np.testing.assert_allclose(by_onnx.sum(1), 1, atol=1e-5)  # the probabilities of one label and its opposite
assert np.abs(by_onnx[:, 1] - by_xgboost[:, 0]).max() > 0.1 < np.abs(by_onnx[:, 1] - by_xgboost[:, 1]).max()
PYTHON
