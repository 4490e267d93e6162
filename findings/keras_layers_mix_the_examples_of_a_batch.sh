#!/usr/bin/env bash
# Keras 3.15.1 prepares an image or a clip differently, depending on what else is in its batch.
#
# Expected: layers that prepare data treat each example by itself, so that a model gives the same prediction for an
# example alone and in a batch, and training and use agree.
# Observed: Equalization makes one histogram of all images of the batch, so that a dark image stays dark beside a bright
# one. MelSpectrogram with decibels, the default, cuts off what is 80 dB below the loudest sound of the batch, so that a
# quiet clip beside a loud one loses its content. Alone, both are right. Call the layers by `dataset.map` before
# `batch`.
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


def equalized(image):
    """Return a grey image whose values are spread by its own histogram."""
    sums = np.cumsum(np.bincount(image.ravel(), minlength=256))
    first = sums[sums > 0][0]
    return np.round((sums - first) * 255 / (sums[-1] - first))[image]


dark, bright = generator.integers(0, 64, (32, 32)), generator.integers(192, 256, (32, 32))
images = np.stack([dark, bright])[..., None]
layer = keras.layers.Equalization()
alone = [np.asarray(layer(image[None]))[0, ..., 0] for image in images]
together = np.asarray(layer(images))[..., 0]
for name, image, one, many in zip(("dark", "bright"), (dark, bright), alone, together):
    print(
        f"Equalization, {name} image with values from {image.min()} to {image.max()}: "
        f"alone {one.min():.0f} to {one.max():.0f}, in a batch {many.min():.0f} to {many.max():.0f}"
    )
    assert np.abs(one - equalized(image)).max() <= 1
assert together[0].max() < 128 < together[1].min()

time = np.arange(16_000) / 16_000
quiet = 1e-5 * np.sin(2 * np.pi * 440 * time).astype(np.float32)
loud = np.sin(2 * np.pi * 2_000 * time).astype(np.float32)
layer = keras.layers.MelSpectrogram()
alone = np.asarray(layer(quiet[None]))[0]
together = np.asarray(layer(np.stack([quiet, loud])))[0]
print(f"MelSpectrogram, quiet clip: values span {np.ptp(alone):.0f} dB alone, {np.ptp(together):.0f} dB in a batch")
assert np.ptp(alone) > 30
assert np.ptp(together) == 0
PYTHON
