#!/usr/bin/env bash
# Keras 3.15.1 on TensorFlow: ScheduleFreeAdamW ignores `beta_1`, and is another algorithm than with JAX.
#
# Expected: weights follow the schedule-free algorithm (arXiv:2405.15682) with any backend: z takes the steps of Adam, x
# is the average of z, and the gradient is taken between both, at (1 - beta) z + beta x.
# Observed: with TensorFlow, the weights are the same for each beta_1, those of beta_1 = 1: gradients are taken at the
# average, which the paper finds to be slower. To recover x, the optimizer keeps the value of z before its step; with
# TensorFlow this is the variable, which has the value after the step when it is read. With JAX, where values do not
# change, the same code follows the algorithm, but the network ends with the point of the last gradient, not with x.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 jax==0.10.2 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
cat > train.py <<'PYTHON'
import keras
import numpy as np

RATE, BETA_2, EPSILON, STEPS = 0.05, 0.99, 1e-8, 60
target, start = np.float32([1, -2, 3]), np.zeros(3, np.float32)


def trained(beta_1):
    """Return the weights after some steps towards a target, by the gradients of half the squared distance."""
    weights = keras.Variable(start)
    optimizer = keras.optimizers.ScheduleFreeAdamW(RATE, beta_1, BETA_2, EPSILON)
    for _ in range(STEPS):
        optimizer.apply([keras.ops.convert_to_tensor(np.asarray(weights) - target)], [weights])
    return np.asarray(weights)


def by_hand(beta_1):
    """Return the point of the last gradient, and the average, by the algorithm."""
    x, y, z, squares = (np.float64(start) for _ in range(4))
    for step in range(1, STEPS + 1):
        gradient = y - target
        squares = BETA_2 * squares + (1 - BETA_2) * gradient**2
        z = z - RATE * gradient / (np.sqrt(squares / (1 - BETA_2**step)) + EPSILON)
        x = (1 - 1 / step) * x + z / step
        y = (1 - beta_1) * z + beta_1 * x
    return y, x


backend = keras.backend.backend()
print("keras", keras.__version__, "on", backend)
for beta_1 in (0.1, 0.5, 0.9):
    by_keras, (point, average) = trained(beta_1), by_hand(beta_1)
    print(f"beta_1 {beta_1}: {by_keras.round(3)}, by hand {point.round(3)} with the average {average.round(3)}")
    if backend == "jax":
        np.testing.assert_allclose(by_keras, point, atol=1e-4)
        assert np.abs(by_keras - average).max() > 0.1
    else:
        np.testing.assert_allclose(by_keras, by_hand(1)[0], atol=1e-4)
        assert np.abs(by_keras - point).max() > 0.1
PYTHON
for backend in jax tensorflow; do
    KERAS_BACKEND=$backend "$directory/venv/bin/python" train.py 2>/dev/null
done
