#!/usr/bin/env bash
# Keras 3.15.1 counts padding in precision, AUC and IoU, but not in accuracy and the loss.
#
# Expected: the mask of a layer such as Masking or Embedding(mask_zero=True) excludes padded steps from all metrics, as
# it does in Keras 2 (tf_keras 2.21.0).
# Observed: the loss and accuracy ignore the padding. Precision of the same network counts it, without a warning, and
# depends on how far sequences are padded. So do AUC and BinaryIoU.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 tf_keras==2.21.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np
import tf_keras

print("keras", keras.__version__, "tf_keras", tf_keras.__version__)


def measured(library, padding, argument):
    """Return the metrics of a network for sequences of ten steps and as many of padding."""
    generator = np.random.default_rng(0)
    x = generator.uniform(0.1, 1, (50, 10, 1)).astype(np.float32)
    y = np.float32(x + generator.normal(size=x.shape) * 0.3 < 0.5)
    x, y = (np.pad(each, ((0, 0), (0, padding), (0, 0))) for each in (x, y))
    network = library.Sequential(
        [
            library.layers.Input((10 + padding, 1)),
            library.layers.Masking(0.0),
            library.layers.Dense(1, "sigmoid"),
        ]
    )
    network.set_weights([np.float32([[-4]]), np.float32([2])])
    metrics = [
        library.metrics.BinaryAccuracy(name="accuracy"),
        library.metrics.Precision(name="precision"),
        library.metrics.AUC(name="auc"),
        library.metrics.BinaryIoU(name="iou"),
    ]
    network.compile(loss="mse", **{argument: metrics})
    scores = network.evaluate(x, y, batch_size=50, verbose=0, return_dict=True)
    return {name: round(value, 3) for name, value in scores.items()}


for library in (tf_keras, keras):
    for argument in ("metrics", "weighted_metrics"):
        plain, padded = (measured(library, padding, argument) for padding in (0, 10))
        print(f"{library.__name__} with {argument}: without padding {plain}, with padding {padded}")
        for name, value in plain.items():
            same = abs(value - padded[name]) < 1e-3
            assert same is (library is tf_keras or name in ("accuracy", "loss"))
PYTHON
