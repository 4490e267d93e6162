#!/usr/bin/env bash
# TensorFlow 2.21.0 can differentiate dilated convolutions on CPUs only if oneDNN is enabled.
#
# Expected: the set of differentiable operations does not depend on the processor.
# Observed: the gradient of tf.nn.conv2d with dilations=2, and keras.layers.Conv2DTranspose with dilation_rate=2, work with
# oneDNN and raise InvalidArgumentError ("Current CPU implementations do not yet support dilation rates larger than
# 1.") without it. oneDNN is enabled by default on processors with AVX-512 and disabled on others, so the same
# training script works on one machine and fails on another. tf.nn.convolution, and keras.layers.Conv2D, which uses it,
# have a gradient in both cases.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
cd "$directory"
cat > gradients.py <<'PYTHON'
import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow import keras

image, kernel = tf.ones((1, 9, 9, 2)), tf.ones((3, 3, 2, 4))


def gradient(function):
    with tf.GradientTape() as tape:
        tape.watch(image)
        result = function(image, kernel, 1, "VALID", dilations=2)
    return tape.gradient(result, image)


def trained():
    model = keras.Sequential([keras.Input((9, 9, 2)), keras.layers.Conv2DTranspose(4, 3, dilation_rate=2, padding="same")])
    model.compile("sgd", "mse")
    model.fit(np.ones((2, 9, 9, 2)), np.ones((2, 9, 9, 4)), verbose=0)


def works(function):
    try:
        function()
    except tf.errors.InvalidArgumentError as error:
        assert "dilation rates larger than 1" in str(error)
        return False
    return True


onednn = os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1"
seen = {
    "conv2d": works(lambda: gradient(tf.nn.conv2d)),
    "Conv2DTranspose": works(trained),
    "convolution": works(lambda: gradient(tf.nn.convolution)),
}
print(f"tensorflow {tf.__version__}, oneDNN {'on' if onednn else 'off'}:", seen)
assert seen == {"conv2d": onednn, "Conv2DTranspose": onednn, "convolution": True}
PYTHON
export TF_CPP_MIN_LOG_LEVEL=3
for onednn in 1 0; do
  TF_ENABLE_ONEDNN_OPTS=$onednn "$directory/venv/bin/python" gradients.py
done
