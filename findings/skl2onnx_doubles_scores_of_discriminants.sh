#!/usr/bin/env bash
# skl2onnx 1.20.0 doubles the scores of linear discriminants for two classes, so that probabilities are too close to 0
# and 1.
#
# Expected: the ONNX model gives the probabilities of scikit-learn 1.9.1, which are the posterior ones of the two
# Gaussian densities that the method has fitted.
# Observed: its probability is the sigmoid of twice the score: 0.96 instead of 0.82. Labels, which depend on the sign,
# are the same, so that a comparison of labels or accuracy does not show it, and there is no warning. Thresholds other
# than a half, calibration, costs and averages of several models are wrong. With three classes, both agree.
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
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

print(*(f"{name} {version(name)}" for name in ("skl2onnx", "scikit-learn", "onnxruntime")))
generator = np.random.default_rng(0)
points = generator.normal(size=(400, 3)).astype(np.float32)
others = generator.normal(size=(300, 3)).astype(np.float32)
noisy = points[:, 0] + generator.normal(size=len(points))


def posteriors(model):
    """Return the probabilities by the densities of Gaussian distributions with one covariance."""
    centred = points - model.means_[labels]
    precision = np.linalg.inv(centred.T @ centred / len(points))
    distances = np.stack([np.einsum("nf,fg,ng->n", others - m, precision, others - m) for m in model.means_], 1)
    densities = model.priors_ * np.exp(-distances / 2)
    return densities / densities.sum(1, keepdims=True)


for classes in (2, 3):
    labels = np.digitize(noisy, [0, 1][: classes - 1])
    model = LinearDiscriminantAnalysis().fit(points, labels)
    content = to_onnx(model, points[:1], options={id(model): {"zipmap": False}}).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    by_onnx_labels, by_onnx = session.run(None, {"X": others})
    by_sklearn, exact = model.predict_proba(others), posteriors(model)
    difference = np.abs(by_onnx - by_sklearn).max()
    print(
        f"{classes} classes: probabilities differ by up to {difference:.4f}; "
        f"the first are {by_onnx[0].round(3)}, scikit-learn {by_sklearn[0].round(3)}, densities {exact[0].round(3)}"
    )
    np.testing.assert_array_equal(by_onnx_labels, model.predict(others))
    np.testing.assert_allclose(by_sklearn, exact, atol=0.01)
    if classes == 2:
        doubled = 1 / (1 + np.exp(-2 * model.decision_function(others)))
        np.testing.assert_allclose(by_onnx[:, 1], doubled, atol=1e-4)
        assert difference > 0.1
    else:
        np.testing.assert_allclose(by_onnx, by_sklearn, atol=1e-4)
PYTHON
