#!/usr/bin/env bash
# m2cgen 0.10.0 writes code without parts of XGBoost's and LightGBM's models: weights, links, leaves and the base score.
#
# Expected: the code computes what XGBoost 3.2.0 and LightGBM 4.7.0 predict, or the model is refused, as it is for
# LightGBM's `zero_as_missing`.
# Observed: with a given base score and squared errors, the code is right. `booster="dart"` adds up its trees without
# their weights; `count:poisson` gives logarithms; LightGBM's `linear_tree` has the constants of its leaves alone. Errors
# are half to several times the largest result, without a warning, in all languages that it writes, as they are made of
# the same tree. With XGBoost's default, a base score that is learned from the data, the code adds `nan`, a name that it
# does not define.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet m2cgen==0.10.0 xgboost-cpu==3.2.0 lightgbm==4.7.0 scikit-learn==1.9.1 \
    numpy==2.4.6 scipy==1.17.1
cd "$directory"
"$directory/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import m2cgen
import numpy as np
from lightgbm import LGBMRegressor
from xgboost import XGBRegressor

print(*(f"{name} {version(name)}" for name in ("m2cgen", "xgboost-cpu", "lightgbm")))
generator = np.random.default_rng(0)
points, others = generator.normal(size=(300, 3)), generator.normal(size=(200, 3))
values = points @ [1, 2, -1] + generator.normal(size=len(points)) * 0.1
counts = generator.poisson(np.exp(values / 3))


def error(kind, targets, **options):
    """Return the largest difference of the code from the model, relative to the largest result of the latter."""
    model = kind(n_estimators=20, n_jobs=1, **options).fit(points, targets)
    names = {}
    exec(m2cgen.export_to_python(model), names)
    right = model.predict(others)
    result = np.abs([names["score"](point) for point in others.tolist()] - right).max() / np.abs(right).max()
    print(f"{kind.__name__} with {options}: error {result:.1e}")
    return result


assert error(XGBRegressor, values, base_score=0.5) < 1e-5
assert error(LGBMRegressor, values, verbose=-1) < 1e-9
assert error(XGBRegressor, values, base_score=0.5, booster="dart", rate_drop=0.5) > 0.1
assert error(XGBRegressor, counts, base_score=0.5, objective="count:poisson") > 0.1
assert error(LGBMRegressor, values, verbose=-1, linear_tree=True) > 0.1
try:
    error(XGBRegressor, values)
except NameError as problem:
    print(f"XGBRegressor with its default base score: {problem}")
else:
    raise AssertionError("the code ran")
PYTHON
