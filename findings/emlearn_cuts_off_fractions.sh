#!/usr/bin/env bash
# emlearn 0.23.2 cuts the fractions off features and thresholds of trees, and returns other labels than the model.
#
# Expected: `convert` of a random forest gives a program that predicts what scikit-learn predicts, up to rounding, or
# says that features must be scaled to integers first. Networks are converted with floats.
# Observed: trees use int16 unless `dtype="float"` is given, and features are neither scaled nor checked. With features
# between 0 and 1, as after the usual scaling, all thresholds become 0, and all examples get one answer. Classes are
# numbered: labels 5 and 9 are returned as 0 and 1, also by `predict` in Python, which resembles scikit-learn's. There
# is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet emlearn==0.23.2 scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
cd "$directory"
"$directory/venv/bin/python" -W error::UserWarning - <<'PYTHON'
from importlib.metadata import version

import emlearn
import numpy as np
from sklearn.ensemble import RandomForestClassifier

print("emlearn", version("emlearn"))
points = np.random.default_rng(0).random((400, 4))
labels = (points[:, 0] + points[:, 1] / 2 > 0.7).astype(int)


def agreement(scale, labels, **options):
    """Return the share of equal predictions, and those of the converted forest."""
    features = points * scale
    forest = RandomForestClassifier(10, max_depth=4, random_state=0).fit(features, labels)
    predicted = emlearn.convert(forest, method="inline", **options).predict(features)
    share = (predicted == forest.predict(features)).mean()
    print(f"features up to {scale:,}, labels {set(labels.tolist())}, {options}: {share:.0%} agree, {set(predicted)}")
    return share, set(predicted)


for scale, options in ((1, {"dtype": "float"}), (10_000, {})):
    assert agreement(scale, labels, **options)[0] > 0.97
share, predicted = agreement(1, labels)
assert share < 0.7 and len(predicted) == 1
share, predicted = agreement(10_000, labels * 4 + 5)
assert share == 0 and predicted == {0, 1}
PYTHON
