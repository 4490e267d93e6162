#!/usr/bin/env bash
# Keras 3.15.1 loads networks of Keras 2 with another hard sigmoid than the one that they were trained with.
#
# Expected: a file that Keras 3 accepts gives the outputs that it gave in Keras 2, or there is a warning.
# Observed: `hard_sigmoid` has a slope of 1/5 in Keras 2 (tf_keras 2.21.0) and of 1/6 in Keras 3. A file of Keras 2 is loaded
# without a warning, and its outputs are others. It was the default for the gates of LSTM and GRU in early versions, and is
# that of ConvLSTM2D in the last one. Multiply what the function gets by 1.2 as a workaround.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 tf_keras==2.21.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3 KERAS_BACKEND=tensorflow
"$directory/venv/bin/python" -W ignore - <<'PYTHON'
import warnings

import keras
import numpy as np
import tf_keras

x = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
print("keras", keras.__version__, "tf_keras", tf_keras.__version__)


def outputs(activation):
    """Return a dense layer's outputs in Keras 2, and those of its file in Keras 3."""
    network = tf_keras.Sequential([tf_keras.layers.Input((8,)), tf_keras.layers.Dense(4, activation=activation)])
    network.save("network.h5")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = keras.models.load_model("network.h5", compile=False)
    assert not any("sigmoid" in str(warning.message) for warning in caught)
    kernel, bias = network.get_weights()
    return x @ kernel + bias, network(x).numpy(), np.asarray(loaded(x))


sums, keras2, keras3 = outputs("hard_sigmoid")
print("hard_sigmoid: largest difference", np.abs(keras2 - keras3).max())
np.testing.assert_allclose(keras2, np.clip(sums / 5 + 0.5, 0, 1), atol=1e-5)
np.testing.assert_allclose(keras3, np.clip(sums / 6 + 0.5, 0, 1), atol=1e-5)
assert np.abs(keras2 - keras3).max() > 0.05
_, keras2, keras3 = outputs("sigmoid")
print("sigmoid: largest difference", np.abs(keras2 - keras3).max())
np.testing.assert_allclose(keras2, keras3, atol=1e-5)
gates = [library.layers.ConvLSTM2D(2, 3).get_config()["recurrent_activation"] for library in (tf_keras, keras)]
print("gates of ConvLSTM2D in Keras 2 and 3:", gates)
assert gates == ["hard_sigmoid", "sigmoid"]
PYTHON
