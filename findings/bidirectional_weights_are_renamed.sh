#!/usr/bin/env bash
# Keras 3.15.1 gives the weights of a Bidirectional layer other paths when its model is loaded again.
#
# Expected: a variable's path is the same in a model, and in the model that its file is loaded as: it is what optimizers,
# exporters and whoever stores values by name go by.
# Seen: "both/forward_lstm/lstm_cell/kernel" becomes "forward_lstm/lstm_cell/kernel", for both directions; those of a
# Dense layer beside it stay. The values are right.
#
# Exits with 1 if that has changed.
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
