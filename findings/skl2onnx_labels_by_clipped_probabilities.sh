#!/usr/bin/env bash
# skl2onnx 1.20.0 takes the labels of `SGDClassifier(loss="modified_huber")` from clipped probabilities.
#
# Expected: the label of the ONNX model is that of scikit-learn 1.9.1, the class with the largest score.
# Observed: it is the class with the largest probability. This loss clips probabilities to 0 and 1, so that several are
# equal if all scores are below -1 or two are above 1, and the first of them is taken. With three or more classes, some
# 8% of the labels change, without a warning; the probabilities are equal. With `loss="log_loss"`, or two
# classes, the labels are equal.
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
from sklearn.linear_model import SGDClassifier

print(*(f"{name} {version(name)}" for name in ("skl2onnx", "scikit-learn", "onnxruntime")))
generator = np.random.default_rng(0)
points = generator.normal(size=(1_300, 4)).astype(np.float32)
scores = points @ generator.normal(size=(4, 5))
points, others = points[:1_000], points[1_000:]

for loss, classes in (("modified_huber", 2), ("modified_huber", 3), ("modified_huber", 5), ("log_loss", 5)):
    labels = scores[:, :classes].argmax(1)
    model = SGDClassifier(loss=loss, random_state=0).fit(points, labels[:1_000])
    content = to_onnx(model, points[:1], options={id(model): {"zipmap": False}}).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    by_onnx, probabilities = session.run(None, {"X": others})
    by_sklearn = model.predict(others)
    np.testing.assert_allclose(probabilities, model.predict_proba(others), atol=1e-4)
    changed = np.mean(by_onnx != by_sklearn)
    accuracies = [np.mean(seen == labels[1_000:]) for seen in (by_sklearn, by_onnx)]
    print(
        f"{loss}, {classes} classes: {changed:.1%} of the labels differ, "
        f"accuracy {accuracies[0]:.3f} by scikit-learn, {accuracies[1]:.3f} by ONNX"
    )
    assert changed > 0.05 if loss == "modified_huber" and classes > 2 else changed == 0
PYTHON
