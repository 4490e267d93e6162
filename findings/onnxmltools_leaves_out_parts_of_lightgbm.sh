#!/usr/bin/env bash
# onnxmltools 1.16.0 leaves out parts of LightGBM's models: linear leaves, missing zeros, squares and slopes of
# sigmoids.
#
# Expected: the ONNX model computes what LightGBM 4.7.0 computes, within float32, or the conversion fails, as it does
# for objectives that are not supported.
# Observed, without a warning: with `linear_tree`, each leaf has its constant alone; with `zero_as_missing`, zeros take
# the branch of small or large numbers; with `reg_sqrt`, results are square roots; with `sigmoid=2`, probabilities are
# those of a slope of 1. Errors are a tenth to a half of the largest result. All are parameters of training that are
# stored in LightGBM's file.
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
points[generator.random(len(points)) < 0.2, 0] = 0
values = points @ [1, 2, -1, 0.5] + 2 * (points[:, 0] == 0) + generator.normal(size=len(points)) * 0.1


def error(kind, targets, **options):
    """Return the largest difference of ONNX from LightGBM, relative to the largest result of the latter."""
    model = kind(n_estimators=10, verbose=-1, num_threads=1, **options).fit(points, targets)
    content = convert_lightgbm(model.booster_, initial_types=[("X", FloatTensorType([None, 4]))], zipmap=False)
    session = onnxruntime.InferenceSession(content.SerializeToString(), providers=["CPUExecutionProvider"])
    by_onnx = session.run(None, {"X": points})[-1]
    right = model.predict_proba(points) if kind is lightgbm.LGBMClassifier else model.predict(points)[:, None]
    return np.abs(by_onnx - right).max() / np.abs(right).max()


for kind, targets, options in (
    (lightgbm.LGBMRegressor, values, {"linear_tree": True}),
    (lightgbm.LGBMRegressor, values, {"zero_as_missing": True}),
    (lightgbm.LGBMRegressor, values, {"reg_sqrt": True}),
    (lightgbm.LGBMClassifier, values > 0, {"sigmoid": 2.0}),
):
    plain, seen = error(kind, targets), error(kind, targets, **options)
    print(f"{kind.__name__} with {options}: error {seen:.4f}, without {plain:.4f}")
    assert plain < 1e-3 and seen > 0.1
PYTHON
