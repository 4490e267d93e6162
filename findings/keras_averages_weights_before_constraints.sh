#!/usr/bin/env bash
# Keras 3.15.1 averages weights before it applies their constraints, so that averaged weights violate them.
#
# Expected: with `use_ema`, the network ends with a moving average of its weights after each step. An average of weights
# that are not negative is not negative, and that of weights of a bounded norm is bounded.
# Observed: the optimizer adds the weights to the average before the constraint changes them, and applies no constraint
# to the average. Weights that the gradient pushes below zero with NonNeg are zero in training, and negative in the
# network that fit() returns.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import keras
import numpy as np

print("keras", keras.__version__)
generator = np.random.default_rng(0)
x = generator.normal(size=(64, 4)).astype(np.float32)
y = x @ np.float32([[2], [-2], [1], [-1]])
RATE, MOMENTUM, BATCH = 0.1, 0.5, 4


def trained(constraint):
    """Return the weights of a linear network after an epoch with a moving average of the weights."""
    network = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, use_bias=False, kernel_constraint=constraint)]
    )
    network.layers[0].kernel.assign(np.full((4, 1), 0.1))
    optimizer = keras.optimizers.SGD(RATE, use_ema=True, ema_momentum=MOMENTUM)
    network.compile(optimizer, "mse")
    network.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return network.layers[0].kernel.numpy()


def by_hand(constrained):
    """Return the average of the weights after each step."""
    weights, average = np.full((4, 1), 0.1), None
    for start in range(0, len(x), BATCH):
        rows, wanted = x[start : start + BATCH], y[start : start + BATCH]
        weights = weights - RATE * 2 / BATCH * rows.T @ (rows @ weights - wanted)
        if constrained:
            weights = np.maximum(weights, 0)
        average = weights if average is None else MOMENTUM * average + (1 - MOMENTUM) * weights
    return average


kernel, expected = trained("non_neg"), by_hand(True)
print("averaged weights with NonNeg:", kernel.ravel().round(3), "by hand:", expected.ravel().round(3))
assert expected.min() >= 0
assert kernel.min() < -0.01
np.testing.assert_allclose(trained(None), by_hand(False), atol=1e-4)
PYTHON
