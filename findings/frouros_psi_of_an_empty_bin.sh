#!/usr/bin/env bash
# frouros 0.9.0: one of 1,000 examples where the reference has none makes the population stability index 0.7.
#
# Expected: an index below 0.1 for a sample of the same distribution, as the usual limits of 0.1 and 0.25 require. Shares
# of empty bins are commonly raised to a ten-thousandth, or to that of half an example.
# Observed: `PSI` raises them to 2e-308, the smallest float, whose logarithm is -708: an example in a bin that is empty on
# the other side counts 0.7 in 1,000. As ten bins divide the range of both samples, the outermost have few examples: of 100
# pairs of samples of 1,000 from one normal distribution, 33 exceed 0.25, and none if shares are raised to a
# ten-thousandth. An alarm depends on the outermost examples alone.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet frouros==0.9.0 numpy==2.1.3 scipy==1.14.1
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from frouros.detectors.data_drift.batch import PSI

print("frouros", version("frouros"))
generator = np.random.default_rng(0)


def by_library(reference, sample):
    detector = PSI(num_bins=10)
    detector.fit(X=reference)
    return detector.compare(X=sample)[0].distance


def by_hand(reference, sample, least=1e-4):
    edges = np.histogram_bin_edges(np.concatenate([reference, sample]), 10)
    first, second = (np.maximum(np.histogram(part, edges)[0] / len(part), least) for part in (reference, sample))
    return ((second - first) * np.log(second / first)).sum()


pairs = generator.normal(size=(100, 2, 1000))
figures = {}
for name, index in (("PSI", by_library), ("by hand, shares of at least 1/10,000", by_hand)):
    figures[name] = np.array([index(*pair) for pair in pairs])
    print(f"{name}: of equal distributions, {(figures[name] > 0.25).mean():.0%} exceed 0.25, the largest", figures[name].max())
assert (figures["PSI"] > 0.25).mean() > 0.2 and figures["PSI"].max() > 0.7
assert figures["by hand, shares of at least 1/10,000"].max() < 0.1
PYTHON
