#!/usr/bin/env bash
# Keras 3.15.1 applies the weights of examples to time steps, if a batch has as many examples as a sequence has steps.
#
# Expected: `sample_weight` with one number for each example weights the example, as the documentation of fit() and
# evaluate() says, whatever the shape of the targets: an example with weight 0 has no influence.
# Observed: for sequences, the loss of shape [batch, steps] is multiplied by [batch], which means the last axis. If both
# are equal, such as 32 steps with the default batch of 32, step i of all examples gets the weight of example i, without
# a warning; otherwise there is an error. The same holds for images that are as wide as the batch is large. Metrics in
# `weighted_metrics` use the right axis, so that they contradict the loss. Weights of shape [examples, 1] are right.
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


def losses(examples, steps, weights_shape):
    """Return the loss and the weighted metric of a network, and both by hand: weighted by example and by step."""
    x = generator.normal(size=(examples, steps, 1)).astype(np.float32)
    y = x + generator.normal(size=x.shape).astype(np.float32) * np.arange(1, steps + 1)[:, None]
    weights = np.float32(np.arange(examples) < examples // 4)
    inputs = keras.Input((steps, 1))
    network = keras.Model(inputs, keras.layers.Identity()(inputs))
    network.compile(loss="mse", weighted_metrics=["mse"])
    scores = network.evaluate(
        x, y, batch_size=examples, sample_weight=weights.reshape(weights_shape), verbose=0, return_dict=True
    )
    errors = np.square(y - x)[..., 0]
    by_example = (errors * weights[:, None]).mean()
    by_step = (errors * weights).mean() if examples == steps else None
    metric = (errors * weights[:, None]).sum() / weights.sum() / steps
    return scores["loss"], scores["mse"], by_example, by_step, metric


loss, mse, by_example, by_step, metric = losses(32, 32, [-1])
print(f"32 examples of 32 steps: loss {loss:.1f}, by hand {by_example:.1f} by example and {by_step:.1f} by step")
np.testing.assert_allclose(loss, by_step, rtol=1e-4)
assert loss < by_example / 2
np.testing.assert_allclose(mse, metric, rtol=1e-4)
loss, _, by_example, *_ = losses(32, 32, [-1, 1])
print(f"with weights of shape [32, 1]: loss {loss:.1f}, by hand {by_example:.1f} by example")
np.testing.assert_allclose(loss, by_example, rtol=1e-4)
try:
    losses(16, 32, [-1])
except Exception as error:
    print("16 examples of 32 steps:", type(error).__name__)
else:
    raise AssertionError("16 examples of 32 steps are accepted")
PYTHON
