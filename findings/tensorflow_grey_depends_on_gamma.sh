#!/usr/bin/env bash
# TensorFlow 2.21.0 decodes a colour PNG to other greys, if the file says how its colours are encoded.
#
# Expected: a chunk such as gAMA or sRGB, which tools for photos and screenshots write, does not change the pixels that
# a network gets: it changes neither colours, nor greys by way of `tf.image.rgb_to_grayscale`, nor those of Pillow.
# Observed: `tf.io.decode_png` and `decode_image` with `channels=1` mix the colours in linear light if there is such a
# chunk, so that pure red becomes 147 instead of 76. JPEGs, and PNGs without the chunk, are mixed as they are stored, so
# that the greys of a folder are not comparable.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tensorflow==2.21.0 pillow==13.0.0 numpy==2.4.6
cd "$directory"
export TF_CPP_MIN_LOG_LEVEL=3
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import io
import struct

import numpy as np
import PIL
import tensorflow as tf
from PIL import Image, PngImagePlugin

print("tensorflow", tf.__version__, "pillow", PIL.__version__)
colours = np.uint8([[(255, 0, 0), (0, 255, 0), (0, 0, 255), (200, 100, 50), (128, 128, 128)]])


def png(**chunks):
    """Return the colours as a PNG with further chunks."""
    info, content = PngImagePlugin.PngInfo(), io.BytesIO()
    for name, data in chunks.items():
        info.add(name.encode(), data)
    Image.fromarray(colours).save(content, "PNG", pnginfo=info)
    return content.getvalue()


def greys(content):
    """Return the greys of TensorFlow, those of its colours, and those of Pillow."""
    decoded = tf.io.decode_png(content, channels=1)
    assert (tf.io.decode_image(content, channels=1) == decoded).numpy().all()
    of_colours = tf.image.rgb_to_grayscale(tf.io.decode_png(content, channels=3))
    with Image.open(io.BytesIO(content)) as image:
        return decoded.numpy().ravel(), of_colours.numpy().ravel(), np.asarray(image.convert("L")).ravel()


files = {
    "no chunk": png(),
    "gAMA": png(gAMA=struct.pack(">I", 45_455)),
    "sRGB": png(sRGB=b"\0"),
}
for name, content in files.items():
    decoded, of_colours, by_pillow = greys(content)
    print(f"{name}: decoded to grey {decoded}, grey of the colours {of_colours}, Pillow {by_pillow}")
    assert (tf.io.decode_png(content, channels=3).numpy() == colours).all()
    assert np.abs(of_colours.astype(int) - by_pillow).max() <= 1
    difference = np.abs(decoded.astype(int) - by_pillow)
    assert difference.max() <= 1 if name == "no chunk" else difference.max() > 50
PYTHON
