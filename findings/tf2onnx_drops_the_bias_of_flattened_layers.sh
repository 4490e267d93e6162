#!/usr/bin/env bash
# tf2onnx 1.17.0 drops the bias of the dense layer behind pooling and `Flatten`, if it converts a LiteRT network.
#
# Expected: the ONNX model computes what the LiteRT network computes, or the conversion fails.
# Observed: if flattening keeps the last axis, as behind an average over the whole image, TensorFlow 2.21.0's converter
# makes one FULLY_CONNECTED of Flatten and Dense, which flattens its input itself (`keep_num_dims` is false). tf2onnx
# adds a Reshape for it, and connects the layer with that and the weights alone, without a warning: all scores of such a
# classifier lack the bias. LiteRT and Keras agree. Layers whose input has two dimensions in the file are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tf2onnx==1.17.0 tensorflow==2.21.0 keras==3.15.1 ai-edge-litert==2.3.0 \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from ai_edge_litert.interpreter import Interpreter

print(*(f"{name} {version(name)}" for name in ("tf2onnx", "tensorflow", "ai-edge-litert", "onnxruntime")))
OUTPUTS = 3
generator = np.random.default_rng(0)
image = generator.normal(size=(1, 4, 4, 2)).astype(np.float32)


def by_litert():
    interpreter = Interpreter("network.tflite")
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def by_onnxruntime():
    tf2onnx.convert.from_tflite("network.tflite", opset=17, output_path="network.onnx")
    session = onnxruntime.InferenceSession("network.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: image})[0]


for name, layers in (
    ("AveragePooling2D and Flatten", [keras.layers.AveragePooling2D(4), keras.layers.Flatten()]),
    ("GlobalAveragePooling2D", [keras.layers.GlobalAveragePooling2D()]),
    ("Flatten", [keras.layers.Flatten()]),
):
    dense = keras.layers.Dense(OUTPUTS, bias_initializer=keras.initializers.RandomNormal(stddev=1.0, seed=0))
    network = keras.Sequential([keras.Input(image.shape[1:], batch_size=1), *layers, dense])
    Path("network.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(network).convert())
    right, seen, bias = network(image).numpy(), by_onnxruntime(), dense.bias.numpy()
    print(f"{name}: differences of the ONNX model {np.round(seen - right, 4)}, bias {np.round(bias, 4)}")
    np.testing.assert_allclose(by_litert(), right, atol=1e-5)
    np.testing.assert_allclose(seen, right - bias * (len(layers) == 2), atol=1e-5)
    assert np.abs(bias).max() > 0.1
PYTHON
