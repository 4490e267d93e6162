#!/usr/bin/env bash
# Keras 3.15.1 averages weights before it applies their constraints, so that averaged weights violate them.
#
# Expected: with `use_ema`, the network ends with a moving average of its weights after each step. An average of weights
# that are not negative is not negative, and that of weights of a bounded norm is bounded.
# Observed: the optimizer adds the weights to the average before the constraint changes them, and applies no constraint
# to the average. Weights that the gradient pushes below zero with NonNeg are zero in training, and negative in the
# network that fit() returns.
# With `gradient_accumulation_steps`, the average is also made for each batch, not for each update of the weights, so
# that it forgets faster by this factor than with larger batches, which give the same weights otherwise.
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
RATE, MOMENTUM, BATCH, STEPS = 0.1, 0.5, 4, 4


def trained(constraint, batch, **settings):
    """Return the weights of a linear network after an epoch with a moving average of the weights."""
    network = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, use_bias=False, kernel_constraint=constraint)]
    )
    network.layers[0].kernel.assign(np.full((4, 1), 0.1))
    optimizer = keras.optimizers.SGD(RATE, use_ema=True, ema_momentum=MOMENTUM, **settings)
    network.compile(optimizer, "mse")
    network.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    return network.layers[0].kernel.numpy()


def by_hand(constrained, batch, updates=1):
    """Return the average of the weights after each step, which counts several times except for the last step."""
    weights, average = np.full((4, 1), 0.1), None
    for start in range(0, len(x), batch):
        for _ in range(updates - 1 if start else 0):
            average = MOMENTUM * average + (1 - MOMENTUM) * weights
        rows, wanted = x[start : start + batch], y[start : start + batch]
        weights = weights - RATE * 2 / batch * rows.T @ (rows @ weights - wanted)
        if constrained:
            weights = np.maximum(weights, 0)
        average = weights if average is None else MOMENTUM * average + (1 - MOMENTUM) * weights
    return average


kernel, expected = trained("non_neg", BATCH), by_hand(True, BATCH)
print("averaged weights with NonNeg:", kernel.ravel().round(3), "by hand:", expected.ravel().round(3))
assert expected.min() >= 0
assert kernel.min() < -0.01
kernel, expected = trained(None, BATCH), by_hand(False, BATCH)
np.testing.assert_allclose(kernel, expected, atol=1e-4)

kernel, expected = trained(None, BATCH, gradient_accumulation_steps=STEPS), by_hand(False, BATCH * STEPS)
faster = by_hand(False, BATCH * STEPS, updates=STEPS)
print("averaged weights with accumulation:", kernel.ravel().round(3), "by hand:", expected.ravel().round(3))
assert np.abs(kernel - expected).max() > 0.01
np.testing.assert_allclose(kernel, faster, atol=1e-4)
np.testing.assert_allclose(trained(None, BATCH * STEPS), expected, atol=1e-4)
PYTHON
