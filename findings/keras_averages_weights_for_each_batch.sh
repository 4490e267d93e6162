#!/usr/bin/env bash
# Keras 3.15.1 averages weights for each batch instead of each update, if gradients of several batches are accumulated.
#
# Expected: `gradient_accumulation_steps=4` with batches of 4 gives the same network as batches of 16, also with `use_ema`:
# an average of the weights after each update.
# Observed: the weights are the same, but their average is made four times for each update, so that it forgets faster by
# this factor. There is no warning.
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


def trained(batch, **settings):
    """Return the weights of a linear network after an epoch with a moving average of the weights."""
    network = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, use_bias=False)]
    )
    network.layers[0].kernel.assign(np.full((4, 1), 0.1))
    optimizer = keras.optimizers.SGD(RATE, use_ema=True, ema_momentum=MOMENTUM, **settings)
    network.compile(optimizer, "mse")
    network.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    return network.layers[0].kernel.numpy()


def by_hand(batch, repeats=1):
    """Return the average of the weights, each of which counts several times except for those of the last update."""
    weights, average = np.full((4, 1), 0.1), None
    for start in range(0, len(x), batch):
        for _ in range(repeats - 1 if start else 0):
            average = MOMENTUM * average + (1 - MOMENTUM) * weights
        rows, wanted = x[start : start + batch], y[start : start + batch]
        weights = weights - RATE * 2 / batch * rows.T @ (rows @ weights - wanted)
        average = weights if average is None else MOMENTUM * average + (1 - MOMENTUM) * weights
    return average


kernel, expected = trained(BATCH, gradient_accumulation_steps=STEPS), by_hand(BATCH * STEPS)
print("averaged weights with accumulation:", kernel.ravel().round(3), "by hand:", expected.ravel().round(3))
assert np.abs(kernel - expected).max() > 0.01
np.testing.assert_allclose(kernel, by_hand(BATCH * STEPS, repeats=STEPS), atol=1e-4)
np.testing.assert_allclose(trained(BATCH * STEPS), expected, atol=1e-4)
PYTHON
