#!/usr/bin/env bash
# Keras 3.15.1 adjusts the R2 score by the number of targets instead of examples, which is too high for several outputs.
#
# Expected: `R2Score(num_regressors=p)` is 1 - (1 - R2) * (n - 1) / (n - p - 1) for n examples, however many outputs the
# network has.
# Observed: n is the number of examples times that of outputs. The score without `num_regressors` is right, and there is no
# warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 scikit-learn==1.9.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np
import sklearn
from sklearn.metrics import r2_score

print("keras", keras.__version__, "scikit-learn", sklearn.__version__)
generator = np.random.default_rng(0)


def score(targets, predictions, **settings):
    metric = keras.metrics.R2Score(**settings)
    metric.update_state(targets, predictions)
    return float(metric.result())


rows, regressors = 20, 8
for outputs in (1, 4):
    targets = np.float32(generator.normal(size=(rows, outputs)))
    predictions = np.float32(targets + generator.normal(size=targets.shape) * 0.5)
    plain = r2_score(targets, predictions)
    expected, wrong = (1 - (1 - plain) * (n - 1) / (n - regressors - 1) for n in (rows, rows * outputs))
    by_keras = score(targets, predictions, num_regressors=regressors)
    print(f"{rows} rows of {outputs} outputs, {regressors} regressors: Keras {by_keras:.3f}, expected {expected:.3f}")
    assert abs(score(targets, predictions) - plain) < 1e-3
    assert abs(by_keras - wrong) < 1e-3
assert by_keras - expected > 0.05
PYTHON
