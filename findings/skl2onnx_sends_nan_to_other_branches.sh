#!/usr/bin/env bash
# skl2onnx 1.20.0 sends missing values down other branches of trees than scikit-learn 1.9.1.
#
# Expected: a tree sends NaN to the branch that it has learned for missing values (`missing_go_to_left`), or, if it has
# seen none, to the one with more examples; the ONNX operator for trees has `nodes_missing_value_tracks_true` for this.
# Observed: the conversion sets that attribute to zero for all nodes, without a warning, so that NaN always takes the
# branch of large numbers. A tree that has learned that missing values belong to the small ones loses it. Numbers take
# the right branches. It is the same for forests.
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
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

print(*(f"{name} {version(name)}" for name in ("skl2onnx", "scikit-learn", "onnxruntime")))
generator = np.random.default_rng(0)


def examples(count):
    """Return examples, of which some lack the first feature; those and the large ones are positive."""
    features = generator.normal(size=(count, 3)).astype(np.float32)
    features[generator.random(count) < 0.3, 0] = np.nan
    return features, (np.isnan(features[:, 0]) | (features[:, 0] < -1)).astype(int)


features, labels = examples(1_000)
others, right = examples(500)
missing = np.isnan(others[:, 0])
for model in (
    DecisionTreeClassifier(random_state=0),
    RandomForestClassifier(20, random_state=0),
    ExtraTreesClassifier(20, random_state=0),
):
    model.fit(features, labels)
    converted = to_onnx(model, features[:1], options={id(model): {"zipmap": False}})
    nodes = {attribute.name: attribute for node in converted.graph.node for attribute in node.attribute}
    assert not any(nodes["nodes_missing_value_tracks_true"].ints)
    session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    by_onnx, by_sklearn = session.run(None, {"X": others})[0], model.predict(others)
    accuracies = [np.mean((seen == right)[missing]) for seen in (by_sklearn, by_onnx)]
    print(
        f"{type(model).__name__}: accuracy of examples with missing values {accuracies[0]:.3f} by scikit-learn, "
        f"{accuracies[1]:.3f} by ONNX; {np.mean((by_onnx != by_sklearn)[~missing]):.3f} of the others change"
    )
    np.testing.assert_array_equal(by_onnx[~missing], by_sklearn[~missing])
    assert accuracies[0] > 0.95 and accuracies[1] < 0.7
PYTHON
