#!/usr/bin/env bash
# TorchMetrics 1.9.0 applies a sigmoid to the scores of some batches and not of others, and mixes both in one AUROC.
#
# Expected: AUROC, average precision and accuracy of a data set do not depend on how it is cut into batches. "If preds
# has values outside [0,1] range we consider the input to be logits and will auto apply sigmoid per element", the
# documentation says; ranks are the same with or without a sigmoid.
# Observed: it is decided anew for each batch. A batch whose logits happen to lie between 0 and 1 is kept as it is, so
# that a logit of 0.1, which is a probability of 0.52, is below a logit of -2 of another batch, which is one of 0.12. It
# is common for small batches: the AUROC of well separated classes depends on the size of a batch, without a warning,
# and is wrong for all but the whole data set at once. Classes are decided by a threshold of 0.5 for such batches, and
# of 0 for others. scikit-learn 1.9.1 gives the AUROC of the whole. Give the metric probabilities as a workaround.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet torchmetrics==1.9.0 torch==2.13.0 scikit-learn==1.9.1 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import numpy as np
import sklearn
import torch
import torchmetrics
from sklearn.metrics import average_precision_score, roc_auc_score
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryAveragePrecision

print("torchmetrics", torchmetrics.__version__, "scikit-learn", sklearn.__version__)
generator = np.random.default_rng(0)
labels = generator.integers(0, 2, 2_000)
logits = np.float32(generator.normal(0.8 * labels, 0.4))
right = {
    BinaryAUROC: roc_auc_score(labels, logits),
    BinaryAveragePrecision: average_precision_score(labels, logits),
    BinaryAccuracy: np.mean((logits > 0) == labels),
}


def by_batches(kind, scores, size):
    metric = kind()
    for start in range(0, len(scores), size):
        metric.update(torch.tensor(scores[start : start + size]), torch.tensor(labels[start : start + size]))
    return float(metric.compute())


probabilities = 1 / (1 + np.exp(-logits))
for kind, exact in right.items():
    print(f"{kind.__name__}: exactly {exact:.3f}")
    for size in (1, 2, 4, len(logits)):
        of_logits, of_probabilities = (by_batches(kind, scores, size) for scores in (logits, probabilities))
        print(f"  batches of {size:,}: {of_logits:.3f} of logits, {of_probabilities:.3f} of probabilities")
        assert abs(of_probabilities - exact) < 1e-3
        assert (abs(of_logits - exact) < 1e-3) == (size == len(logits))
PYTHON
