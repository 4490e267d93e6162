#!/usr/bin/env bash
# uncertainty-toolbox 0.1.1 mirrors quantiles, so that its recalibration moves them away from biased targets.
#
# Expected: the proportion of data below the predicted 10% quantile is the share of targets that are smaller than that
# quantile; after `get_quantile_recalibrator`, 90% of the targets are below the 90% quantile.
# Observed: residuals are the prediction minus the target, so that the share of targets above the opposite quantile is
# counted. If predictions are too low by a standard deviation, 39% instead of 1% are said to be below the 10% quantile.
# The recalibrated quantiles are lower still, so that 22% of the targets are below the 90% quantile, after 62% without
# recalibration. Errors that are symmetric, and the central intervals of `get_interval_recalibrator`, are right, as is
# the mean calibration error, which is the same for mirrored curves.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet uncertainty-toolbox==0.1.1 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from scipy.stats import norm
from uncertainty_toolbox.metrics_calibration import get_proportion_under_quantile
from uncertainty_toolbox.recalibration import get_quantile_recalibrator

print("uncertainty-toolbox", version("uncertainty-toolbox"))
COUNT = 4_000
generator = np.random.default_rng(0)
predictions, deviations = np.zeros(COUNT), np.ones(COUNT)
for bias in (-1, 0, 1):
    targets, others = generator.normal(bias, 1, (2, COUNT))
    recalibrated = get_quantile_recalibrator(predictions, deviations, targets)
    for quantile in (0.1, 0.5, 0.9):
        below, above = (np.mean(targets <= norm.ppf(quantile)), np.mean(targets >= norm.ppf(1 - quantile)))
        seen = get_proportion_under_quantile(predictions, deviations, targets, quantile)
        before, after = np.mean(others <= norm.ppf(quantile)), np.mean(others <= recalibrated(predictions, deviations, quantile))
        print(f"targets {bias:+d}, quantile {quantile}: {below:.3f} below it, {seen:.3f} by the toolbox; "
              f"{before:.3f} of others before recalibration, {after:.3f} after it")
        assert abs(seen - above) < 1e-9 and (abs(seen - below) < 0.03) == (bias == 0)
        worse = abs(after - quantile) > abs(before - quantile)
        assert (worse and abs(after - quantile) > 0.07) if bias else abs(after - quantile) < 0.03
PYTHON
