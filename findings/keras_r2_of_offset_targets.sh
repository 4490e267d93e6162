#!/usr/bin/env bash
# Keras 3.15.1 loses the R2 score of targets far from zero to rounding: predicting their mean may score 1.
#
# Expected: R2Score is that of scikit-learn, also for prices, temperatures in kelvin, years or coordinates, which vary
# little compared with their mean.
# Observed: the metric adds up targets and their squares in float32, and subtracts the one from the other. A network
# that always predicts the mean of targets around 10,000 that vary by 1 has a score near 1 instead of 0, without a
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
values = generator.normal(size=(4_096, 1))


def score(targets, predictions):
    """Return the score of Keras by batches of 32."""
    metric = keras.metrics.R2Score()
    for start in range(0, len(targets), 32):
        metric.update_state(targets[start : start + 32], predictions[start : start + 32])
    return float(metric.result())


for mean in (0, 10, 1_000, 10_000):
    targets = np.float32(mean + values)
    predictions = np.full_like(targets, targets.mean(dtype=np.float64))
    by_keras, right = score(targets, predictions), r2_score(targets, predictions)
    print(f"the mean of targets around {mean:,}: Keras {by_keras:.3f}, scikit-learn {right:.3f}")
    assert abs(right) < 1e-3
    if mean <= 10:
        assert abs(by_keras) < 1e-2
assert abs(by_keras) > 0.5
PYTHON
