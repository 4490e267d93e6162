#!/usr/bin/env bash
# Keras 3.15.1 changes the paths of a Bidirectional layer's weights when its model is saved and loaded.
#
# Expected: saving and loading a model does not change the paths of its variables, which optimizers, exporters and other
# code use as keys.
# Observed: "both/forward_lstm/lstm_cell/kernel" becomes "forward_lstm/lstm_cell/kernel", for both directions. The paths
# of a Dense layer in the same model do not change. The values are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - <<'PYTHON'
import keras
import numpy as np

inputs = keras.Input((4, 3))
x = keras.layers.Bidirectional(keras.layers.LSTM(2), name="both")(inputs)
model = keras.Model(inputs, keras.layers.Dense(2, name="dense")(x))
model.save("model.keras")
loaded = keras.models.load_model("model.keras")
print("keras", keras.__version__)
renamed = []
for before, after in zip(model.weights, loaded.weights, strict=True):
    print(before.path, "->", after.path)
    assert np.array_equal(before.numpy(), after.numpy())
    renamed.append(before.path != after.path)
assert renamed == [True] * 6 + [False] * 2
PYTHON
