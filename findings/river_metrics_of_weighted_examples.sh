#!/usr/bin/env bash
# river 0.26.1: the mutual information of weighted examples is negative, and so is their Rand index.
#
# Expected: metrics whose `update` takes the weight `w` of an example give what they give if the example occurs `w` times,
# or what scikit-learn gives with `sample_weight`; accuracy, precision, recall and F1 do.
# Observed: mutual information, homogeneity, completeness, the V measure and the Rand index divide sums of weights by the
# number of updates. If each of 300 examples has the weight 2, mutual information is -0.76 instead of 0.31, and the Rand
# index, a share of pairs, is -0.19 instead of 0.70. There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet river==0.26.1 numpy==2.4.6 scipy==1.17.1
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from river import metrics

print("river", version("river"))
generator = np.random.default_rng(0)
truth = generator.integers(0, 3, 300)
predicted = np.where(generator.random(300) < 0.6, truth, generator.integers(0, 3, 300))


def value(name, times=1, weight=None):
    """Return a metric of examples that occur several times, or have a weight."""
    metric = getattr(metrics, name)()
    for _ in range(times):
        for pair in zip(truth.tolist(), predicted.tolist()):
            metric.update(*pair, *([] if weight is None else [weight]))
    return metric.get()


found = {}
for name in ("Accuracy", "MacroF1", "Rand", "MutualInfo", "Homogeneity", "Completeness", "VBeta"):
    found[name] = value(name), value(name, times=2), value(name, weight=2)
    print("%s: each example once %.3f, twice %.3f, with weight 2 %.3f" % (name, *found[name]))
for name in ("Accuracy", "MacroF1"):
    assert max(found[name]) - min(found[name]) < 1e-9
for name in ("Rand", "MutualInfo", "Homogeneity", "Completeness", "VBeta"):
    once, twice, weighted = found[name]
    assert abs(once - twice) < 0.01 and once > 0.2 and weighted < 0
PYTHON
